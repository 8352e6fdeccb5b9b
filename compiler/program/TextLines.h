// Reads canonical texts line by line, each line as words. Empty lines are an error of the format and are returned as a
// line without words; asking for a word that is not there gives an empty one.
#pragma once
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cermet {

class TextLines {
public:
  explicit TextLines(std::string_view text) : rest(text) {}

  bool next() {
    words.clear();
    if (rest.empty())
      return false;
    ++line;
    size_t end = rest.find('\n');
    std::string_view current = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    for (size_t begin = 0; begin < current.size();) {
      size_t space = std::min(current.find(' ', begin), current.size());
      if (space > begin)
        words.push_back(current.substr(begin, space - begin));
      begin = space + 1;
    }
    return true;
  }

  int number() const { return line; }
  size_t count() const { return words.size(); }
  std::string_view word(size_t i) const { return i < words.size() ? words[i] : std::string_view(); }
  std::string_view remainder() const { return rest; } // the text after the current line

  bool integer(size_t i, int64_t& value) const { return read(word(i), value) && value >= 0; }
  bool real(size_t i, double& value) const { return read(word(i), value); }
  bool reference(size_t i, int64_t& value) const { // %12
    std::string_view text = word(i);
    return text.starts_with('%') && read(text.substr(1), value) && value >= 0;
  }
  bool setting(size_t i, std::string_view key, int64_t& value) const { // key=12
    std::string_view text = word(i);
    return text.starts_with(key) && text.substr(key.size()).starts_with('=') &&
           read(text.substr(key.size() + 1), value) && value >= 0;
  }

private:
  template <typename T> static bool read(std::string_view text, T& value) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  }

  std::string_view rest;
  std::vector<std::string_view> words;
  int line = 0;
};

// The shortest decimal that reads back as the same number.
inline std::string exactText(double value) {
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
}

} // namespace cermet
