// The hand-written code that a row program stands in (compiler/cuda/device): it decides how many blocks there are.
#pragma once
#include <string_view>

namespace cermet {

enum class Skeleton { Flat, Row, Column, Turned };

constexpr std::string_view kSkeletons[] = {"flat", "row", "column", "turned"}; // their names in specs and plans

} // namespace cermet
