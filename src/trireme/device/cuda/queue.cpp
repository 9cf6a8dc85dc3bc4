#include <utility>
#include <vector>

#include "trireme/device/cuda/check.h"
#include "trireme/device/cuda/copies.h"
#include "trireme/device/cuda/cuda.h"

namespace trireme::device::cuda {
namespace {

class Event {
 public:
  explicit Event(unsigned flags) { TRI_CUDA(cudaEventCreateWithFlags(&event_, flags)); }
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;

  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

std::vector<Event> events_of(std::size_t count, unsigned flags) {
  std::vector<Event> events;
  events.reserve(count);
  for (std::size_t i = 0; i < count; ++i) events.emplace_back(flags);
  return events;
}

// Lanes are streams.
class CudaQueue final : public Queue {
 public:
  explicit CudaQueue(const QueueShape& shape)
      : lanes_(shape.lanes, nullptr),
        marks_(events_of(shape.marks, cudaEventDefault)),
        events_(events_of(shape.events, cudaEventDisableTiming)),
        joints_(events_of(shape.lanes, cudaEventDisableTiming)) {
    int least = 0;
    int most = 0;
    TRI_CUDA(cudaDeviceGetStreamPriorityRange(&least, &most));
    for (std::size_t k = 0; k < lanes_.size(); ++k)
      TRI_CUDA(cudaStreamCreateWithPriority(&lanes_[k], cudaStreamNonBlocking,
                                            shape.yielding == 0 || k == shape.yielding ? least : most));
  }
  ~CudaQueue() override {
    for (cudaGraphExec_t recording : recordings_) cudaGraphExecDestroy(recording);
    for (cudaStream_t lane : lanes_)
      if (lane != nullptr) cudaStreamDestroy(lane);
  }
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  void* native(std::size_t lane) const override { return lanes_[lane]; }
  void copy(void* to, const void* from, std::size_t bytes, std::size_t lane) override {
    if (bytes > 0) TRI_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, lanes_[lane]));
  }
  void copy_all(std::span<const Copy> copies, std::size_t lane) override { launch_copies(lanes_[lane], copies); }
  void call(void (*function)(void*), void* context, std::size_t lane) override {
    TRI_CUDA(cudaLaunchHostFunc(lanes_[lane], function, context));
  }
  void synchronize() override {
    for (cudaStream_t lane : lanes_) TRI_CUDA(cudaStreamSynchronize(lane));
  }
  void drain(std::size_t lane) override { TRI_CUDA(cudaStreamSynchronize(lanes_[lane])); }

  bool reads(const void* memory) const override {
    cudaPointerAttributes attributes{};
    TRI_CUDA(cudaPointerGetAttributes(&attributes, memory));
    return attributes.type == cudaMemoryTypeHost;
  }

  void record(std::size_t event, std::size_t lane) override { TRI_CUDA(cudaEventRecord(events_[event], lanes_[lane])); }
  void wait(std::size_t event, std::size_t lane) override {
    TRI_CUDA(cudaStreamWaitEvent(lanes_[lane], events_[event], 0));
  }
  void* point(std::size_t event) const override { return static_cast<cudaEvent_t>(events_[event]); }
  void follow(void* point, std::size_t lane) override {
    TRI_CUDA(cudaStreamWaitEvent(lanes_[lane], static_cast<cudaEvent_t>(point), 0));
  }
  void spread(std::size_t but) override {
    if (lanes_.size() == 1) return;
    TRI_CUDA(cudaEventRecord(joints_[0], lanes_[0]));
    for (std::size_t lane = 1; lane < lanes_.size(); ++lane)
      if (lane != but) TRI_CUDA(cudaStreamWaitEvent(lanes_[lane], joints_[0], 0));
  }
  void gather(std::size_t but) override {
    for (std::size_t lane = 1; lane < lanes_.size(); ++lane) {
      if (lane == but) continue;
      TRI_CUDA(cudaEventRecord(joints_[lane], lanes_[lane]));
      TRI_CUDA(cudaStreamWaitEvent(lanes_[0], joints_[lane], 0));
    }
  }

  void mark(std::size_t point, std::size_t lane) override {
    TRI_CUDA(cudaEventRecordWithFlags(marks_[point], lanes_[lane], recording_ ? cudaEventRecordExternal : 0U));
  }
  double seconds(std::size_t from, std::size_t to) const override {
    float milliseconds = 0;
    TRI_CUDA(cudaEventElapsedTime(&milliseconds, marks_[from], marks_[to]));
    return 1e-3 * static_cast<double>(milliseconds);
  }

  void begin_recording() override {
    TRI_CUDA(cudaStreamBeginCapture(lanes_[0], cudaStreamCaptureModeThreadLocal));
    recording_ = true;
  }
  std::size_t end_recording() override {
    cudaGraph_t graph = nullptr;
    recording_ = false;
    TRI_CUDA(cudaStreamEndCapture(lanes_[0], &graph));
    cudaGraphExec_t executable = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    check(status, "cudaGraphInstantiate");
    recordings_.push_back(executable);
    return recordings_.size() - 1;
  }
  void drop_recording() noexcept override {
    if (!recording_) return;
    recording_ = false;
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(lanes_[0], &graph) == cudaSuccess && graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
  }
  void replay(std::size_t recording) override { TRI_CUDA(cudaGraphLaunch(recordings_[recording], lanes_[0])); }

 private:
  std::vector<cudaStream_t> lanes_;
  std::vector<Event> marks_;
  std::vector<Event> events_;
  std::vector<Event> joints_;
  std::vector<cudaGraphExec_t> recordings_;
  bool recording_ = false;
};

}  // namespace

std::unique_ptr<Queue> make_queue(const QueueShape& shape) { return std::make_unique<CudaQueue>(shape); }

}  // namespace trireme::device::cuda
