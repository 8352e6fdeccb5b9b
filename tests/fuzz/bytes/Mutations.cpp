// A target without libFuzzer, where there is no Clang: every file of a corpus as it is, then so many seconds of files
// in which bytes were changed, moved, taken away or came from another file.
//
//     bytes_TARGET SECONDS CORPUS ...      folders or files
#include "tests/fuzz/bytes/Target.h"
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int kMostChanges = 8;
constexpr size_t kLongestPiece = 64;

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string changed(std::string bytes, const std::string& other, std::mt19937_64& random) {
  for (size_t changes = 1 + random() % kMostChanges; changes-- > 0 && !bytes.empty();) {
    const size_t at = random() % bytes.size(), size = 1 + random() % kLongestPiece;
    const std::string& from = random() % 2 == 0 ? other : bytes;
    const std::string piece = from.empty() ? "" : from.substr(random() % from.size(), size);
    switch (random() % 5) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
      break;
    case 1:
      bytes[at] = static_cast<char>(random());
      break;
    case 2:
      bytes.erase(at, size);
      break;
    case 3:
      bytes.insert(at, piece);
      break;
    default:
      bytes.replace(at, piece.size(), piece);
    }
  }
  return bytes;
}

void tryOut(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

} // namespace

int main(int count, char** arguments) {
  std::vector<std::string> corpus;
  for (int index = 2; index < count; ++index) {
    if (!std::filesystem::is_directory(arguments[index]))
      corpus.push_back(read(arguments[index]));
    else
      for (const auto& item : std::filesystem::directory_iterator(arguments[index]))
        if (item.is_regular_file())
          corpus.push_back(read(item.path()));
  }
  if (corpus.empty()) {
    fmt::print(stderr, "usage: {} SECONDS CORPUS ...; there is no file in what was named\n", arguments[0]);
    return 2;
  }
  for (const std::string& bytes : corpus)
    tryOut(bytes);
  const unsigned long seed = std::random_device()();
  fmt::print("seed {}, {} files\n", seed, corpus.size());
  std::fflush(stdout);
  std::mt19937_64 random(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(std::atof(arguments[1]));
  long tried = 0;
  for (; std::chrono::steady_clock::now() < end; ++tried)
    tryOut(changed(corpus[random() % corpus.size()], corpus[random() % corpus.size()], random));
  fmt::print("{} changed inputs\n", tried);
  return 0;
}
