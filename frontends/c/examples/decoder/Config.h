// What a decoder is, as a Hugging Face checkpoint's config.json says it.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

struct Config {
  int64_t hidden, layers, heads, keyHeads, headSize, intermediate, vocabulary, positions;
  double eps;
  bool tied; // the embedding's table is the head's weight, too
  std::string dtype;
  std::set<int64_t> ends;       // tokens that end a text
  std::vector<float> frequency; // radians a position turns each of the headSize / 2 pairs by

  // Anything that this program does not compute is an error, by the field's name.
  static Config read(const std::string& directory);
};
