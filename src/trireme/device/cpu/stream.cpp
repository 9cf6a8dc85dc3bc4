#include "trireme/device/stream.h"

#include <algorithm>

namespace trireme::device {

Stream::Stream(std::size_t capacity) : ring_(std::max<std::size_t>(capacity, 1)), thread_([this] { work(); }) {}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Stream::submit(const Task& task) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_ < ring_.size(); });
  ring_[(head_ + waiting_) % ring_.size()] = task;
  ++waiting_;
  lock.unlock();
  changed_.notify_all();
}

void Stream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_ == 0 && !busy_; });
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || waiting_ > 0; });
    if (waiting_ == 0) return;  // stopping, and everything submitted is done
    const Task task = ring_[head_];
    head_ = (head_ + 1) % ring_.size();
    --waiting_;
    busy_ = true;
    lock.unlock();
    task.run(task.context, task.argument);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace trireme::device
