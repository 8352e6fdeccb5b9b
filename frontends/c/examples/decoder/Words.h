// Text to tokens and back, where the checkpoint has a SentencePiece model (tokenizer.model) and this program was built
// with that library. For other tokenizers there is no library in C++ here, and tokens are given by their numbers.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

class Words {
public:
  virtual ~Words() = default;
  // Null where there is none.
  static std::unique_ptr<Words> open(const std::string& directory);
  virtual std::vector<int64_t> tokens(const std::string& text) const = 0; // the model's first token before them
  virtual std::string text(const std::vector<int64_t>& tokens) const = 0;
};
