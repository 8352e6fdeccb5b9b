#include "Words.h"
#ifdef DECODER_SENTENCEPIECE
#include <fstream>
#include <sentencepiece_processor.h>
#include <stdexcept>

namespace {

class Pieces : public Words {
public:
  explicit Pieces(const std::string& path) { check(processor_.Load(path)); }
  std::vector<int64_t> tokens(const std::string& text) const override {
    std::vector<int> pieces;
    check(processor_.Encode(text, &pieces));
    std::vector<int64_t> result(pieces.begin(), pieces.end());
    if (processor_.bos_id() >= 0)
      result.insert(result.begin(), processor_.bos_id());
    return result;
  }
  std::string text(const std::vector<int64_t>& tokens) const override {
    std::string result;
    std::vector<int> pieces;
    for (int64_t token : tokens)
      if (token < processor_.GetPieceSize()) // a model may have room for more words than it knows
        pieces.push_back(static_cast<int>(token));
    check(processor_.Decode(pieces, &result));
    return result;
  }

private:
  static void check(const sentencepiece::util::Status& status) {
    if (!status.ok())
      throw std::runtime_error(status.ToString());
  }
  sentencepiece::SentencePieceProcessor processor_;
};

} // namespace

std::unique_ptr<Words> Words::open(const std::string& directory) {
  const std::string path = directory + "/tokenizer.model";
  return std::ifstream(path) ? std::make_unique<Pieces>(path) : nullptr;
}
#else
std::unique_ptr<Words> Words::open(const std::string&) {
  return nullptr;
}
#endif
