// The entries of a cache directory, and one whose payload is another while all else about it is whole.
#pragma once
#include "runtime/cache/Entry.h"
#include "runtime/support/File.h"
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace cermet {

inline std::vector<std::string> storedFiles(const std::string& folder, const std::string& suffix = ".entry") {
  std::vector<std::string> found;
  for (const auto& item : std::filesystem::directory_iterator(folder))
    if (item.path().string().ends_with(suffix))
      found.push_back(item.path().string());
  return found;
}

inline void replacePayload(const std::string& file, const std::string& payload) {
  Result<Entry> entry = decode(*readFile(file));
  ASSERT_TRUE(entry.ok()) << entry.status().message();
  entry->payload = payload;
  std::ofstream(file, std::ios::binary) << encode(*entry);
}

} // namespace cermet
