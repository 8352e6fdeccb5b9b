// Graph texts that tests compile: the fused operations over any shape and type, as a frontend would send them.
#pragma once
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace cermet::tests {

// "tensor<?x?x64xbf16, #cermet.symbols<["r0", "r1"]>>" from {"r0", "r1", "64"} and "bf16".
inline std::string tensor(const std::vector<std::string>& dimensions, const std::string& type) {
  std::string sizes, symbols;
  for (const std::string& dimension : dimensions) {
    bool number = dimension[0] >= '0' && dimension[0] <= '9';
    sizes += (number ? dimension : "?") + "x";
    if (!number)
      symbols += (symbols.empty() ? "\"" : ", \"") + dimension + "\"";
  }
  return "tensor<" + sizes + type + (symbols.empty() ? ">" : ", #cermet.symbols<[" + symbols + "]>>");
}

inline std::string graph(const std::string& name, const std::string& arguments, const std::string& results,
                         const std::string& body) {
  return fmt::format("module attributes {{cermet.version = 1 : i64}} {{\n  func.func @{}({}) -> ({}) {{\n{}  }}\n}}\n",
                     name, arguments, results, body);
}

inline std::string rmsNorm(const std::vector<std::string>& dimensions, const std::string& x, const std::string& weight,
                           const std::string& result, const std::string& attributes) {
  std::string t = tensor(dimensions, x), w = tensor({dimensions.back()}, weight), r = tensor(dimensions, result);
  return graph("rms_norm", fmt::format("%x: {}, %weight: {}", t, w), r,
               fmt::format("    %y = cermet.rms_norm %x, %weight {{{}}} : {}, {} to {}\n    return %y : {}\n",
                           attributes, t, w, r, r));
}

inline std::string addRmsNorm(const std::vector<std::string>& dimensions, const std::string& x,
                              const std::string& weight, const std::string& result, const std::string& attributes) {
  std::string t = tensor(dimensions, x), w = tensor({dimensions.back()}, weight), r = tensor(dimensions, result);
  return graph(
      "add_rms_norm", fmt::format("%x: {0}, %residual: {0}, %weight: {1}", t, w), r + ", " + t,
      fmt::format("    %y, %sum = cermet.add_rms_norm %x, %residual, %weight {{{0}}} : {1}, {1}, {2} to {3}, {1}\n"
                  "    return %y, %sum : {3}, {1}\n",
                  attributes, t, w, r));
}

inline std::string glu(const std::vector<std::string>& dimensions, const std::string& type) {
  std::string t = tensor(dimensions, type);
  return graph("glu", fmt::format("%gate: {0}, %up: {0}", t), t,
               fmt::format("    %y = cermet.glu %gate, %up : {0}\n    return %y : {0}\n", t));
}

// Rows of a table of any size by `ids` of type `index`, scaled, and their norm.
inline std::string embeddingNorm(const std::string& index, const std::string& type = "bf16",
                                 const std::string& columns = "96") {
  std::string table = tensor({"vocabulary", columns}, type), ids = tensor({"b", "s"}, index),
              w = tensor({columns}, type), x = tensor({"b", "s", columns}, type);
  return graph(
      "embedding_norm", fmt::format("%table: {}, %ids: {}, %weight: {}", table, ids, w), x + ", " + x,
      fmt::format("    %e = cermet.gather %table, %ids : {0}, {1} to {2}\n    %c = cermet.constant 9.75 : {2}\n"
                  "    %x = cermet.mul %e, %c : {2}\n    %n = cermet.rms_norm %x, %weight {{eps = 1.0e-6, "
                  "round_before_weight}} : {2}, {3} to {2}\n    return %n, %x : {2}, {2}\n",
                  table, ids, x, w));
}

// tests/graphs: graphs of plain small operations.
struct GraphFile {
  std::string name, text;
};
inline std::vector<GraphFile> graphFiles() {
  std::vector<GraphFile> files;
  for (const auto& entry : std::filesystem::directory_iterator(SOURCE_DIR "/tests/graphs")) {
    std::ifstream file(entry.path());
    files.push_back({entry.path().filename(), {std::istreambuf_iterator<char>(file), {}}});
  }
  std::ranges::sort(files, {}, &GraphFile::name); // as a folder lists them is nobody's order
  return files;
}

// The inputs whose gradient a graph of tests/graphs is about, `// kernels: 1, of its gradient: 1 (x weight)`; "" where its
// first line names none: every float tensor.
inline std::string wantedInputs(const std::string& text) {
  std::smatch named;
  const std::string line = text.substr(0, text.find('\n'));
  return std::regex_search(line, named, std::regex(R"(of its gradient: \d+ \(([^)]*)\))")) ? named[1].str() : "";
}
inline bool isWantedInput(const std::string& names, const std::string& name, bool isFloat) {
  return names.empty() ? isFloat : (" " + names + " ").find(" " + name + " ") != std::string::npos;
}

} // namespace cermet::tests
