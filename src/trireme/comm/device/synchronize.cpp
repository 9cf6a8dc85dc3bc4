#include <algorithm>
#include <chrono>
#include <thread>

#include "trireme/comm/device/group.h"

namespace trireme::comm {

void synchronize(device::Streams& streams, std::span<DeviceGroup* const> groups, device::Streams::Set of) {
  constexpr std::chrono::microseconds kPause{50};
  const bool waits =
      std::any_of(groups.begin(), groups.end(), [](const DeviceGroup* group) { return group->waits_on_device(); });
  try {
    while (waits && !streams.is_idle(of)) {
      for (DeviceGroup* const group : groups) group->check();
      std::this_thread::sleep_for(kPause);
    }
  } catch (...) {
    for (DeviceGroup* const group : groups) group->abandon();
    streams.synchronize();
    throw;
  }
  if (of == device::Streams::kAll) return streams.synchronize();
  for (std::size_t s = 0; of >> s != 0; ++s)
    if ((of >> s & 1U) != 0) streams.synchronize(s);
}

}  // namespace trireme::comm
