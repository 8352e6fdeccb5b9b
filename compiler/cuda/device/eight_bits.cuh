// Floats of eight bits by integer arithmetic, for machines without instructions for them: the prelude declares these
// functions and calls them there, the CPU's prelude always.

// To nearest, ties to even; what is beyond the largest finite number becomes `most`, NaN 0x7f.
template <int Fraction, int Bias> DEVICE u32 eight_bits_from_float(float value, u32 most) {
  constexpr int kDropped = 23 - Fraction;
  constexpr u32 kSubnormalUnit = u32(127 + 24 - Bias - Fraction) << 23; // a power of two whose last place it is
  const u32 bits = bits_from_float(value), size = bits & 0x7fffffffu, sign = (bits ^ size) >> 24;
  if (size > 0x7f800000u)
    return 0x7fu;
  if (size < u32(128 - Bias) << 23)
    return (bits_from_float(float_from_bits(size) + float_from_bits(kSubnormalUnit)) - kSubnormalUnit) | sign;
  const u32 half = (1u << (kDropped - 1)) - 1 + (size >> kDropped & 1); // of the last place that is kept, less if even
  const u32 rounded = (size - (u32(127 - Bias) << 23) + half) >> kDropped;
  return (rounded < most ? rounded : most) | sign;
}
DEVICE u32 e4m3_from_float(float value) { return eight_bits_from_float<3, 7>(value, 0x7eu); }
DEVICE u32 e5m2_from_float(float value) { return eight_bits_from_float<2, 15>(value, 0x7cu); }

// As an f16, whose exponents are biased by 8 more.
DEVICE float float_from_e4m3(u32 bits) {
  const u32 size = bits & 0x7fu;
  return size == 0x7fu ? float_from_bits(0x7fffffffu) : to_float(f16{u16((bits ^ size) << 8 | size << 7)}) * 256.0f;
}
