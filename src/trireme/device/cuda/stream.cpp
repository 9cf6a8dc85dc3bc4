#include <algorithm>
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

class CudaStreams final : public Streams {
 public:
  explicit CudaStreams(const StreamShape& shape)
      : streams_(shape.streams, nullptr),
        timestamps_(events_of(shape.timestamps, cudaEventDefault)),
        events_(events_of(shape.events, cudaEventDisableTiming)),
        joints_(events_of(shape.streams, cudaEventDisableTiming)) {
    int least = 0;
    int most = 0;
    TRI_CUDA(cudaDeviceGetStreamPriorityRange(&least, &most));
    for (std::size_t s = 0; s < streams_.size(); ++s)
      TRI_CUDA(cudaStreamCreateWithPriority(&streams_[s], cudaStreamNonBlocking,
                                            shape.yielding == 0 || s == shape.yielding ? least : most));
  }
  ~CudaStreams() override {
    // Host calls among the work use what the caller destroys next.
    for (cudaStream_t stream : streams_)
      if (stream != nullptr) cudaStreamSynchronize(stream);
    for (cudaGraphExec_t capture : captures_) cudaGraphExecDestroy(capture);
    for (cudaStream_t stream : streams_)
      if (stream != nullptr) cudaStreamDestroy(stream);
  }
  CudaStreams(const CudaStreams&) = delete;
  CudaStreams& operator=(const CudaStreams&) = delete;

  void issue(std::span<const Work> work) override {
    for (const Work& w : work) w.run(w.context, w.argument);
  }
  bool asynchronous() const override { return true; }

  void* native(std::size_t stream) const override { return streams_[stream]; }
  void copy(void* to, const void* from, std::size_t bytes, std::size_t stream) override {
    if (bytes > 0) TRI_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, streams_[stream]));
  }
  void copy_runs(const Runs& to, const Runs& from, std::size_t bytes, std::size_t count, std::size_t stream) override {
    if (bytes > 0 && count > 0)
      TRI_CUDA(cudaMemcpy2DAsync(to.first, std::max(to.stride, bytes), from.first, std::max(from.stride, bytes), bytes,
                                 count, cudaMemcpyDefault, streams_[stream]));
  }
  void copy_all(std::span<const Copy> copies, std::size_t stream) override { launch_copies(streams_[stream], copies); }
  void call(void (*function)(void*), void* context, std::size_t stream) override {
    TRI_CUDA(cudaLaunchHostFunc(streams_[stream], function, context));
  }
  bool reads(const void* memory) const override {
    cudaPointerAttributes attributes{};
    TRI_CUDA(cudaPointerGetAttributes(&attributes, memory));
    return attributes.type == cudaMemoryTypeHost;
  }

  void fork(Set except) override {
    if (streams_.size() == 1) return;
    TRI_CUDA(cudaEventRecord(joints_[0], streams_[0]));
    for (std::size_t s = 1; s < streams_.size(); ++s)
      if ((except >> s & 1U) == 0) TRI_CUDA(cudaStreamWaitEvent(streams_[s], joints_[0], 0));
  }
  double join(std::size_t stream) override {
    TRI_CUDA(cudaEventRecord(joints_[stream], streams_[stream]));
    TRI_CUDA(cudaStreamWaitEvent(streams_[0], joints_[stream], 0));
    return 0;
  }
  void synchronize() override {
    for (cudaStream_t stream : streams_) TRI_CUDA(cudaStreamSynchronize(stream));
  }
  void synchronize(std::size_t stream) override { TRI_CUDA(cudaStreamSynchronize(streams_[stream])); }
  bool is_idle(Set of) const override {
    for (std::size_t s = 0; s < streams_.size(); ++s)
      if ((of >> s & 1U) != 0 && cudaStreamQuery(streams_[s]) == cudaErrorNotReady) return false;
    return true;
  }

  void record(std::size_t event, std::size_t stream) override {
    TRI_CUDA(cudaEventRecord(events_[event], streams_[stream]));
  }
  double wait(std::size_t event, std::size_t stream) override {
    TRI_CUDA(cudaStreamWaitEvent(streams_[stream], events_[event], 0));
    return 0;
  }
  bool is_done(std::size_t event) const override {
    const cudaError_t status = cudaEventQuery(events_[event]);
    if (status != cudaErrorNotReady) check(status, "cudaEventQuery");
    return status == cudaSuccess;
  }
  void* handle(std::size_t event) const override { return static_cast<cudaEvent_t>(events_[event]); }
  void wait_for(void* handle, std::size_t stream) override {
    TRI_CUDA(cudaStreamWaitEvent(streams_[stream], static_cast<cudaEvent_t>(handle), 0));
  }

  void timestamp(std::size_t number, std::size_t stream) override {
    TRI_CUDA(
        cudaEventRecordWithFlags(timestamps_[number], streams_[stream], capturing_ ? cudaEventRecordExternal : 0U));
  }
  double seconds(std::size_t from, std::size_t to) const override {
    float milliseconds = 0;
    TRI_CUDA(cudaEventElapsedTime(&milliseconds, timestamps_[from], timestamps_[to]));
    return 1e-3 * static_cast<double>(milliseconds);
  }

  void begin_capture() override {
    TRI_CUDA(cudaStreamBeginCapture(streams_[0], cudaStreamCaptureModeThreadLocal));
    capturing_ = true;
  }
  std::size_t end_capture() override {
    cudaGraph_t graph = nullptr;
    capturing_ = false;
    TRI_CUDA(cudaStreamEndCapture(streams_[0], &graph));
    cudaGraphExec_t executable = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    check(status, "cudaGraphInstantiate");
    captures_.push_back(executable);
    return captures_.size() - 1;
  }
  void drop_capture() noexcept override {
    if (!capturing_) return;
    capturing_ = false;
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(streams_[0], &graph) == cudaSuccess && graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
  }
  void replay(std::size_t capture) override { TRI_CUDA(cudaGraphLaunch(captures_[capture], streams_[0])); }

 private:
  std::vector<cudaStream_t> streams_;
  std::vector<Event> timestamps_;
  std::vector<Event> events_;
  std::vector<Event> joints_;
  std::vector<cudaGraphExec_t> captures_;
  bool capturing_ = false;
};

}  // namespace

std::unique_ptr<Streams> make_streams(const StreamShape& shape) { return std::make_unique<CudaStreams>(shape); }

}  // namespace trireme::device::cuda
