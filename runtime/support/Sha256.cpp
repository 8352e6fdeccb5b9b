#include "runtime/support/Sha256.h"
#include <array>
#include <bit>
#include <cstdint>
#include <fmt/format.h>

namespace cermet {

namespace {

constexpr size_t kBlock = 64;

constexpr std::array<uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using State = std::array<uint32_t, 8>;

void mix(State& state, const unsigned char* block) {
  std::array<uint32_t, 64> words;
  for (size_t word = 0; word < 16; ++word)
    words[word] = static_cast<uint32_t>(block[4 * word]) << 24 | static_cast<uint32_t>(block[4 * word + 1]) << 16 |
                  static_cast<uint32_t>(block[4 * word + 2]) << 8 | block[4 * word + 3];
  for (size_t word = 16; word < 64; ++word) {
    const uint32_t early = words[word - 15], late = words[word - 2];
    words[word] = words[word - 16] + (std::rotr(early, 7) ^ std::rotr(early, 18) ^ early >> 3) + words[word - 7] +
                  (std::rotr(late, 17) ^ std::rotr(late, 19) ^ late >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t round = 0; round < 64; ++round) {
    const uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) +
                           kRounds[round] + words[round];
    const uint32_t second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first;
    d = c, c = b, b = a, a = first + second;
  }
  const State mixed = {a, b, c, d, e, f, g, h};
  for (size_t word = 0; word < state.size(); ++word)
    state[word] += mixed[word];
}

} // namespace

std::string sha256(std::string_view bytes) {
  State state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  const size_t whole = bytes.size() / kBlock * kBlock;
  for (size_t at = 0; at < whole; at += kBlock)
    mix(state, data + at);
  // What is left, a one bit, zeros, and the number of bits.
  std::string last(bytes.substr(whole));
  last += '\x80';
  last.resize((last.size() + 8 + kBlock - 1) / kBlock * kBlock, '\0');
  const uint64_t bits = static_cast<uint64_t>(bytes.size()) * 8;
  for (size_t byte = 0; byte < 8; ++byte)
    last[last.size() - 1 - byte] = static_cast<char>(bits >> 8 * byte);
  for (size_t at = 0; at < last.size(); at += kBlock)
    mix(state, reinterpret_cast<const unsigned char*>(last.data()) + at);
  std::string digits;
  for (uint32_t word : state)
    digits += fmt::format("{:08x}", word);
  return digits;
}

} // namespace cermet
