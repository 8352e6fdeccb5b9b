// The targets that a kernel can be compiled for, by name.
#pragma once
#include <string>

namespace cermet {

struct CudaTarget; // runtime/abi/Targets.h

const CudaTarget* cudaTarget(const std::string& name); // null: it is none
bool isCudaTarget(const std::string& target);          // "sm_80" ... "sm_120"
bool isHostTarget(const std::string& target);          // "host:x86-64-v2" ... "-v4"

// "" for a known target, else what is wrong with it and what is known.
std::string checkTarget(const std::string& target);

} // namespace cermet
