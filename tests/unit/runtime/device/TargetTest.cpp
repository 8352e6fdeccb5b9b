// Which target stands for what.
#include "runtime/device/Target.h"
#include <gtest/gtest.h>

namespace cermet {
namespace {

std::string targetOf(int major, int minor) {
  Device device;
  device.name = "GPU";
  device.major = major;
  device.minor = minor;
  const Result<std::string> target = deviceTarget(device);
  return target.ok() ? *target : target.status().message();
}

TEST(Target, ADeviceTakesTheHighestOfItsMajor) {
  EXPECT_EQ(targetOf(8, 0), "sm_80");
  EXPECT_EQ(targetOf(8, 6), "sm_86");
  EXPECT_EQ(targetOf(8, 7), "sm_86");
  EXPECT_EQ(targetOf(8, 9), "sm_89");
  EXPECT_EQ(targetOf(9, 0), "sm_90");
  EXPECT_EQ(targetOf(10, 3), "sm_100");
  EXPECT_EQ(targetOf(12, 1), "sm_120");
  for (auto [major, minor] : {std::pair{7, 5}, {11, 0}, {13, 0}, {0, 0}})
    EXPECT_EQ(targetOf(major, minor),
              fmt::format("GPU has compute capability {}.{}; code can be made for 8.x 9.x 10.x 12.x", major, minor));
}

TEST(Target, NamesAreChecked) {
  std::string known;
  for (const CudaTarget& good : kCudaTargets) {
    EXPECT_TRUE(checkTarget(good.name).ok()) << good.name;
    known += fmt::format("{} ", good.name);
  }
  for (const char* good : kHostTargets)
    EXPECT_TRUE(checkTarget(good).ok()) << good;
  for (const char* bad : {"", "sm_", "sm_70", "sm_090", "sm_90a", "sm_90 ", "host:", "host:x86-64-v1", "host:x86-64-v5",
                          "cuda", "SM_90", "sm_99999999999999999999"})
    EXPECT_EQ(checkTarget(bad).message(), fmt::format("unknown target '{}', expected one of: {}host auto", bad, known));
}

TEST(Target, HostIsThisCpu) {
  const Result<std::string> target = hostTarget();
  ASSERT_TRUE(target.ok()) << target.status().message();
  EXPECT_TRUE(checkHostRuns(*target).ok());
  EXPECT_TRUE(checkHostRuns("host:x86-64-v2").ok());
  EXPECT_EQ(checkHostRuns("host:x86-64-v4").ok(), hostLevel() == 4);
  EXPECT_FALSE(checkHostRuns("sm_90").ok());
}

TEST(Target, ADeviceRunsItsMajorUpToItsMinor) {
  Device device;
  device.name = "GPU";
  device.major = 8;
  device.minor = 6;
  EXPECT_TRUE(checkDeviceRuns("sm_86", device, 0).ok());
  EXPECT_TRUE(checkDeviceRuns("sm_80", device, 0).ok());
  EXPECT_EQ(checkDeviceRuns("sm_89", device, 3).message(),
            "the plan is for sm_89, device 3 (GPU) has compute capability 8.6; compile for it, or for 'auto'");
  EXPECT_FALSE(checkDeviceRuns("sm_90", device, 0).ok());
  EXPECT_FALSE(checkDeviceRuns("host:x86-64-v3", device, 0).ok());
}

} // namespace
} // namespace cermet
