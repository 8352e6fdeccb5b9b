// A directory of one test's own, removed with it.
#pragma once
#include <filesystem>
#include <stdlib.h>
#include <string>

namespace cermet {

class TestDirectory {
public:
  TestDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cermet-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& leaf) const { return path_ + "/" + leaf; }

private:
  std::string path_;
};

} // namespace cermet
