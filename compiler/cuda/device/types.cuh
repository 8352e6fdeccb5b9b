// The types of device code, for a GPU and for the CPU of the tests alike: it stands before either prelude.

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;

// The kernel's one argument: the layout of runtime/abi/RowArguments.h, cut after the last operand.
struct RowOperand {
  char* base;
  i64 stride[4];
  i64 step;
};

struct RowDivisor {
  u32 multiplier, shift;
};

template <int Operands> struct RowArguments {
  i64 rows;
  i64 partialRows;
  i64 rowRank;
  i64 extent[4];
  RowDivisor divisor[2];
  float* partials;
  RowOperand operand[Operands];
};

struct bf16 {
  u16 bits;
};
struct f16 {
  u16 bits;
};
struct f8e4m3 {
  unsigned char bits;
};
struct f8e5m2 {
  unsigned char bits;
};

template <class T, int Count> struct alignas(Count * sizeof(T) < 16 ? Count * sizeof(T) : 16) Vector {
  T at[Count];
};
