// Every .mlir beside this file is a text that must be refused. Its first lines say how:
//
//     // ask: compile sm_90            or: differentiate 1,0
//     // status: 2                     (cermet_status)
//     // error: the message, whole     (a line of its own for each line)
#include "runtime/abi/CompilerApi.h"
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <sstream>

namespace {

std::vector<std::string> graphs() {
  std::vector<std::string> result;
  for (const auto& entry : std::filesystem::directory_iterator(GRAPHS))
    if (entry.path().extension() == ".mlir")
      result.push_back(entry.path().stem());
  std::sort(result.begin(), result.end());
  return result;
}

class Errors : public testing::TestWithParam<std::string> {};

TEST_P(Errors, SayWhatIsWrong) {
  std::ifstream file(fmt::format("{}/{}.mlir", GRAPHS, GetParam()));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream lines(text);
  std::string ask, argument, expected;
  int status = -1;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("// ask: "))
      std::istringstream(line.substr(8)) >> ask >> argument;
    else if (line.starts_with("// status: "))
      status = std::stoi(line.substr(11));
    else if (line.starts_with("// error: "))
      expected.append(expected.empty() ? "" : "\n").append(line, 10);
  }
  const cermet_compiler_table* table = cermet_compiler_table_v1();
  cermet_compiler_options options{"", ""};
  cermet_buffer answer{}, error{};
  cermet_status given = CERMET_OK;
  if (ask == "compile") {
    given = table->compile(text.data(), text.size(), argument.c_str(), &options, &answer, &error);
  } else {
    ASSERT_EQ(ask, "differentiate");
    std::vector<uint8_t> wanted;
    for (char c : argument)
      if (c != ',')
        wanted.push_back(c == '1');
    given = table->differentiate(text.data(), text.size(), wanted.data(), static_cast<int32_t>(wanted.size()), &options,
                                 &answer, &error);
  }
  EXPECT_EQ(given, status);
  EXPECT_EQ(error.data ? std::string(error.data, error.size) : "", expected);
  EXPECT_EQ(answer.data, nullptr) << "an answer beside an error";
  table->release(&answer);
  table->release(&error);
}

INSTANTIATE_TEST_SUITE_P(Graph, Errors, testing::ValuesIn(graphs()), [](const auto& info) { return info.param; });

} // namespace
