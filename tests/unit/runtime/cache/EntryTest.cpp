// The bytes of a cache entry: accepted as encode() made them, and in no other form.
#include "runtime/cache/Entry.h"
#include "tests/unit/runtime/Trial.h"
#include <gtest/gtest.h>
#include <random>

namespace cermet {
namespace {

Entry randomEntry(unsigned seed) {
  std::mt19937 random(seed);
  Entry entry;
  entry.kind = kEntryKinds[random() % std::size(kEntryKinds)];
  entry.nvrtcVersion = static_cast<int>(random() % 20000);
  for (unsigned size = random() % 200 + 1; size-- > 0;)
    entry.key += static_cast<char>(random()); // also bytes that are not UTF-8, and zeros
  for (unsigned size = random() % 400; size-- > 0;)
    entry.payload += static_cast<char>(random());
  return entry;
}

TEST(Entry, ComesBackAsItWent) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const Entry entry = randomEntry(seed);
    const Result<Entry> back = decode(encode(entry));
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(back->kind, entry.kind);
    EXPECT_EQ(back->key, entry.key);
    EXPECT_EQ(back->payload, entry.payload);
    EXPECT_EQ(back->nvrtcVersion, entry.nvrtcVersion);
  }
}

TEST(Entry, RefusesEveryTruncation) {
  const std::string bytes = encode(randomEntry(1));
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode(std::string_view(bytes).substr(0, size)).ok()) << size << " of " << bytes.size();
}

TEST(Entry, RefusesEveryFlippedBit) {
  std::string bytes = encode(randomEntry(2));
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(decode(bytes).ok()) << "bit " << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  }
  EXPECT_TRUE(decode(bytes).ok());
}

// What disks and copies do: a cut, a flipped bit, a block of zeros or of another place, bytes that are missing or
// twice.
std::string damaged(std::string bytes, std::mt19937_64& random) {
  const size_t at = random() % bytes.size(), more = 1 + random() % 64, there = random() % bytes.size();
  switch (random() % 6) {
  case 0:
    return bytes.substr(0, at);
  case 1:
    bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
    return bytes;
  case 2:
    return bytes.replace(at, more, std::min(more, bytes.size() - at), '\0');
  case 3:
    return bytes.replace(at, more, bytes.substr(there, std::min(more, bytes.size() - at)));
  case 4:
    return bytes.erase(at, more);
  default:
    return bytes.insert(at, bytes.substr(there, more));
  }
}

TEST(Entry, RefusesDamageOfEveryKind) {
  const long damages = wanted("TRIAL_DAMAGES", 5000);
  saw("damages", damages * static_cast<long>(std::size(kEntryKinds)));
  std::mt19937_64 random(11);
  for (EntryKind kind : kEntryKinds) {
    Entry entry = randomEntry(static_cast<unsigned>(kind));
    entry.kind = kind;
    const std::string whole = encode(entry);
    for (long turn = 0; turn < damages; ++turn) {
      const std::string bytes = damaged(whole, random);
      ASSERT_TRUE(bytes == whole || !decode(bytes).ok()) << name(kind) << ", damage " << turn;
    }
  }
}

TEST(Entry, RefusesWhatFollowsIt) {
  EXPECT_FALSE(decode(encode(randomEntry(3)) + "x").ok());
}

TEST(Entry, RefusesAZeroedTail) {
  const std::string bytes = encode(randomEntry(4));
  for (size_t kept = 0; kept < bytes.size(); ++kept) {
    std::string torn = bytes.substr(0, kept) + std::string(bytes.size() - kept, '\0');
    EXPECT_TRUE(torn == bytes || !decode(torn).ok()) << "kept " << kept;
  }
}

TEST(Entry, NamesAFutureVersion) {
  std::string bytes = encode(randomEntry(5));
  bytes[8] = 9;
  EXPECT_EQ(decode(bytes).status().message(), "it has format version 9, expected 1");
}

TEST(Entry, FileNameIsAHashOfTheKey) {
  const std::string name = entryFileName("some key");
  EXPECT_EQ(name.size(), 32 + kEntrySuffix.size());
  EXPECT_EQ(name, entryFileName("some key"));
  EXPECT_NE(name, entryFileName("some kez"));
}

} // namespace
} // namespace cermet
