#include "trireme/simulator/walk.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <queue>
#include <unordered_map>

#include "trireme/core/error.h"
#include "trireme/program/capture_regions.h"
#include "trireme/program/print.h"

namespace trireme::simulator {
namespace {

using program::Instruction;

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// Seconds that a thread looks for what it waits for before it sleeps.
constexpr double kLooks = 5e-6;

// An instruction, or a meeting, that is under way.
struct Task {
  std::size_t node = 0;  // of its first member
  Resource resource = Resource::none;
  double latency = 0;  // left
  double busy = 0;     // left
  double rate = 1;
  double crowded = 0;
  double per_link = 1;
  double since = 0;  // when both were counted last
  std::uint32_t version = 0;
  bool done = false;
};

struct Finish {
  double time = 0;
  std::size_t task = 0;
  std::uint32_t version = 0;
  bool operator>(const Finish& other) const { return time != other.time ? time > other.time : task > other.task; }
};

class Walk {
 public:
  Walk(std::span<const Actor> actors, std::span<const Meeting> meetings, std::span<const Domain> domains,
       const Durations& durations)
      : actors_(actors), meetings_(meetings), domains_(domains), durations_(durations), active_(domains.size()) {
    for (const Actor& actor : actors) {
      first_.push_back(nodes_);
      nodes_ += actor.program->instructions.size();
    }
    first_.push_back(nodes_);
    waits_for_.assign(nodes_, 0);
    meeting_.assign(nodes_, kNone);
    before_.assign(nodes_, kNone);
    after_.resize(nodes_);
    actor_of_.resize(nodes_);
    for (std::size_t a = 0; a < actors.size(); ++a)
      std::fill(actor_of_.begin() + static_cast<std::ptrdiff_t>(first_[a]),
                actor_of_.begin() + static_cast<std::ptrdiff_t>(first_[a + 1]), a);
    for (std::size_t m = 0; m < meetings.size(); ++m) {
      missing_.push_back(meetings[m].members.size());
      for (const Meeting::Member& member : meetings[m].members) meeting_[first_[member.actor] + member.instruction] = m;
    }
    for (std::size_t a = 0; a < actors.size(); ++a) order(a);
    find_links();
    timeline_.actors.resize(actors.size());
    for (std::size_t a = 0; a < actors.size(); ++a) timeline_.actors[a].resize(actors[a].program->instructions.size());
  }

  Timeline run() {
    for (std::size_t n = 0; n < nodes_; ++n)
      if (waits_for_[n] == 0) come(n);
    settle();
    while (!finishes_.empty()) {
      const Finish next = finishes_.top();
      finishes_.pop();
      if (tasks_[next.task].done || tasks_[next.task].version != next.version) continue;
      now_ = next.time;
      finish(next.task);
      // All that ends now, before anything is shared out again.
      while (!finishes_.empty() && finishes_.top().time <= now_) {
        const Finish also = finishes_.top();
        finishes_.pop();
        if (!tasks_[also.task].done && tasks_[also.task].version == also.version) finish(also.task);
      }
      settle();
    }
    for (std::size_t n = 0; n < nodes_; ++n)
      if (waits_for_[n] > 0 || (meeting_[n] != kNone && missing_[meeting_[n]] > 0)) stuck(n);
    timeline_.seconds = now_;
    return std::move(timeline_);
  }

 private:
  Span& span(std::size_t node) {
    const std::size_t actor = actor_of_[node];
    return timeline_.actors[actor][node - first_[actor]];
  }
  double end_of(std::size_t node) const {
    const std::size_t actor = actor_of_[node];
    return timeline_.actors[actor][node - first_[actor]].end;
  }

  using Lasts = std::map<std::int32_t, std::vector<std::size_t>>;  // by stream: what its next instruction follows

  // What an actor's instructions wait for of its own.
  void order(std::size_t a) {
    const std::vector<Instruction>& all = actors_[a].program->instructions;
    const std::vector<program::CaptureRegion> none;
    const std::vector<program::CaptureRegion>& regions =
        actors_[a].captures ? actors_[a].program->capture_regions : none;
    std::unordered_map<std::int32_t, std::size_t> recorder;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].records != program::kNone) recorder[all[i].records] = i;
    const auto follow = [&](std::size_t later, std::size_t earlier) {
      after_[first_[a] + earlier].push_back(first_[a] + later);
      ++waits_for_[first_[a] + later];
    };
    Lasts last_on;
    std::vector<std::size_t> region_of(all.size(), kNone);
    std::vector<std::vector<std::size_t>> ends(regions.size());  // of its streams
    const auto wait_for = [&](std::size_t i, std::int32_t event) {
      const auto from = recorder.find(event);
      if (from == recorder.end()) return;
      const std::size_t there = region_of[from->second];
      if (there == kNone || there == region_of[i]) return follow(i, from->second);
      for (const std::size_t end : ends[there]) follow(i, end);
    };
    std::size_t next = 0;  // region
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (next < regions.size() && i == static_cast<std::size_t>(regions[next].first)) start_region(last_on);
      const bool captured = next < regions.size() && i >= static_cast<std::size_t>(regions[next].first);
      if (captured) region_of[i] = next;
      for (const std::size_t before : last_on[all[i].stream]) {
        follow(i, before);
        before_[first_[a] + i] = first_[a] + before;
      }
      last_on[all[i].stream] = {i};
      for (const std::int32_t event : all[i].waits) wait_for(i, event);
      if (!captured) continue;
      // What a region waits for is waited for by all of it.
      for (const std::int32_t event : regions[next].waits) wait_for(i, event);
      if (i + 1 < static_cast<std::size_t>(regions[next].last)) continue;
      ends[next] = end_region(last_on, region_of, next);
      ++next;
    }
  }
  // Streams that are captured go on from the last of all of them.
  static void start_region(Lasts& last_on) {
    std::vector<std::size_t> before;
    for (const auto& [stream, last] : last_on)
      if (!program::is_between_ranks(stream)) before.insert(before.end(), last.begin(), last.end());
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (std::int32_t stream = 0; stream <= program::kReduceStream; ++stream)
      if (!program::is_between_ranks(stream)) last_on[stream] = before;
  }
  // The last of each stream of the region, which all captured streams follow from here on.
  static std::vector<std::size_t> end_region(Lasts& last_on, const std::vector<std::size_t>& region_of,
                                             std::size_t region) {
    std::vector<std::size_t> ends;
    for (const auto& [stream, last] : last_on)
      if (!program::is_between_ranks(stream))
        for (const std::size_t i : last)
          if (region_of[i] == region) ends.push_back(i);
    for (std::int32_t stream = 0; stream <= program::kReduceStream; ++stream)
      if (!program::is_between_ranks(stream)) last_on[stream] = ends;
    return ends;
  }

  [[noreturn]] void stuck(std::size_t n) const {
    const std::size_t actor = actor_of_[n];
    fail("the simulated programs wait for each other for ever: {} of {} never starts",
         program::describe(*actors_[actor].program, n - first_[actor]), actors_[actor].name);
  }

  // All that an instruction itself waits for is done.
  void come(std::size_t node) {
    span(node).ready = now_;
    if (meeting_[node] == kNone)
      start(node);
    else if (--missing_[meeting_[node]] == 0)
      start(first_[meetings_[meeting_[node]].members.front().actor] +
            meetings_[meeting_[node]].members.front().instruction);
  }

  template <class F>
  void each_member(std::size_t node, F&& f) const {
    if (meeting_[node] == kNone) return f(node);
    for (const Meeting::Member& m : meetings_[meeting_[node]].members) f(first_[m.actor] + m.instruction);
  }

  void start(std::size_t node) {
    const std::size_t actor = actor_of_[node];
    const Duration duration = durations_(actor, node - first_[actor]);
    const std::size_t id = tasks_.size();
    tasks_.push_back({node, duration.resource, duration.latency + woken(node, duration), duration.busy, 1,
                      duration.crowded, std::max(1.0, duration.per_link), now_, 0, false});
    each_member(node, [&](std::size_t member) {
      span(member).begin = now_;
      if (duration.resource != Resource::none) enter(id, member);
    });
    // With its rate known once all that starts now has started.
    changed_.push_back(id);
  }

  // A stream of a CPU is a thread, which sleeps while it waits for another's event or for another rank, and for what
  // its instruction itself waits for. It goes on a little later than it could, but not by more than it slept.
  // What communicates gets a core at once (core/wake_promptly.h); what computes waits where others compute on all.
  double woken(std::size_t node, const Duration& duration) const {
    double most = 0;
    each_member(node, [&](std::size_t member) {
      const auto d = static_cast<std::size_t>(actors_[actor_of_[member]].domain);
      const Domain& domain = domains_[d];
      const std::size_t before = before_[member];
      const double slept = now_ - (before == kNone ? 0 : end_of(before));
      double seconds = duration.sleeps * domain.link_wake;
      if (slept > kLooks) {
        double demand = 0;
        for (const Active& a : active_[d]) demand += demand_of(a);
        const bool busy = duration.resource == Resource::compute && demand >= domain.cores;
        seconds += busy ? domain.busy_wake : std::min(domain.wake, slept);
      }
      most = std::max(most, seconds);
    });
    return most;
  }

  void enter(std::size_t id, std::size_t member) {
    const auto domain = static_cast<std::size_t>(actors_[actor_of_[member]].domain);
    active_[domain].push_back({id, actor_of_[member], direction_of(member)});
    touch(domain, tasks_[id], member);
  }
  // What it works with is shared out again: also by the actors that share a link between nodes with it.
  void touch(std::size_t domain, const Task& task, std::size_t member) {
    touch(domain);
    if (task.resource == Resource::network)
      for (const std::size_t other : reached_[actor_of_[member]]) touch(other);
  }
  void touch(std::size_t domain) {
    if (std::find(touched_.begin(), touched_.end(), domain) == touched_.end()) touched_.push_back(domain);
  }

  void finish(std::size_t id) {
    Task& task = tasks_[id];
    task.done = true;
    const std::size_t node = task.node;
    const bool shares = task.resource != Resource::none;
    each_member(node, [&](std::size_t member) {
      span(member).end = now_;
      if (!shares) return;
      const auto domain = static_cast<std::size_t>(actors_[actor_of_[member]].domain);
      std::erase_if(active_[domain], [&](const Active& a) { return a.task == id; });
      touch(domain, task, member);
    });
    each_member(node, [&](std::size_t member) {
      for (const std::size_t later : after_[member])
        if (--waits_for_[later] == 0) come(later);
    });
  }

  // Shares out again what has changed, and says when the tasks concerned will end.
  void settle() {
    for (const std::size_t d : touched_)
      for (const Active& a : active_[d])
        if (std::find(changed_.begin(), changed_.end(), a.task) == changed_.end()) changed_.push_back(a.task);
    for (const std::size_t d : touched_) measure(d);
    touched_.clear();
    for (const std::size_t id : changed_) {
      Task& task = tasks_[id];
      if (task.done) continue;
      progress(task);
      double rate = 1;
      if (task.resource != Resource::none)
        each_member(task.node, [&](std::size_t member) { rate = std::min(rate, rate_of(task, member)); });
      if (task.version > 0 && rate == task.rate) continue;
      task.rate = rate;
      finishes_.push({now_ + task.latency + task.busy / rate, id, ++task.version});
    }
    changed_.clear();
  }

  void progress(Task& task) const {
    double passed = now_ - task.since;
    task.since = now_;
    const double waited = std::min(passed, task.latency);
    task.latency -= waited;
    passed -= waited;
    task.busy = std::max(0.0, task.busy - passed * task.rate);
  }

  // A link's directions do not share: a message goes one way, a collective both.
  enum class Direction : std::uint8_t { both, out, in };
  Direction direction_of(std::size_t node) const {
    const std::size_t actor = actor_of_[node];
    switch (actors_[actor].program->instructions[node - first_[actor]].kind) {
      case Instruction::Kind::send:
      case Instruction::Kind::push: return Direction::out;
      case Instruction::Kind::receive:
      case Instruction::Kind::pull: return Direction::in;
      default: return Direction::both;
    }
  }

  // What is under way, by actor and in the whole domain.
  struct Load {
    std::array<std::array<double, 3>, 6> tasks{};  // by resource and direction; of the network, over `per_link` each
  };
  struct Active {
    std::size_t task;
    std::size_t actor;
    Direction direction;
  };

  // Domains in which an actor's transfers between nodes change what others get.
  void find_links() {
    actors_in_.resize(domains_.size());
    reached_.resize(actors_.size());
    loads_.resize(actors_.size());
    for (std::size_t a = 0; a < actors_.size(); ++a) {
      actors_in_[static_cast<std::size_t>(actors_[a].domain)].push_back(a);
      for (const Actor::OnLink& on : actors_[a].link)
        if (actors_[on.actor].domain != actors_[a].domain)
          reached_[on.actor].push_back(static_cast<std::size_t>(actors_[a].domain));
    }
  }

  // Cores that it would occupy.
  double demand_of(const Active& a) const {
    const Resource resource = tasks_[a.task].resource;
    if (resource == Resource::compute) return actors_[a.actor].ranks * actors_[a.actor].threads;
    return resource == Resource::cores ? actors_[a.actor].ranks : 0;
  }

  void measure(std::size_t d) {
    double demand = 0;
    for (const std::size_t a : actors_in_[d]) loads_[a] = {};
    if (demands_.size() < domains_.size()) demands_.resize(domains_.size());
    for (const Active& a : active_[d]) {
      const Resource resource = tasks_[a.task].resource;
      loads_[a.actor].tasks[static_cast<std::size_t>(resource)][static_cast<std::size_t>(a.direction)] +=
          resource == Resource::network ? 1 / tasks_[a.task].per_link : 1;
      demand += demand_of(a);
    }
    demands_[d] = demand;
  }

  double rate_of(const Task& task, std::size_t member) const {
    const std::size_t actor = actor_of_[member];
    const Domain& domain = domains_[static_cast<std::size_t>(actors_[actor].domain)];
    // In a direction; in both, the fuller of the two.
    const auto count = [&](std::size_t of, Resource r, Direction direction = Direction::both) {
      const auto& [both, out, in] = loads_[of].tasks[static_cast<std::size_t>(r)];
      return both + (direction == Direction::out ? out : direction == Direction::in ? in : std::max(out, in));
    };
    if (domain.cores > 0 && (task.resource == Resource::compute || task.resource == Resource::cores)) {
      const double demand = demands_[static_cast<std::size_t>(actors_[actor].domain)];
      // What communicates was measured with all ranks at it.
      const bool shares =
          task.resource == Resource::compute && demand >= domain.cores && demand > actors_[actor].threads;
      const double crowded = task.crowded > 0 ? task.crowded : domain.busy_slowdown;
      const bool turns = task.resource == Resource::compute && demand > domain.cores;
      const double slowdown = (shares ? crowded : 1) * (turns ? domain.shared_slowdown : 1);
      return std::min(1.0, domain.cores / demand) / slowdown;
    }
    const Direction direction = direction_of(member);
    double load = count(actor, task.resource, direction);
    if (task.resource == Resource::network && !actors_[actor].link.empty()) {
      load = 0;
      for (const Actor::OnLink& on : actors_[actor].link)
        load += on.ranks * count(on.actor, Resource::network, direction);
    }
    const double share = 1.0 / std::max(1.0, load);
    if (task.resource != Resource::compute) return share;
    const bool communicates = count(actor, Resource::inside) + count(actor, Resource::network) > 0;
    return share / (communicates ? domain.communication_slowdown : 1);
  }

  std::span<const Actor> actors_;
  std::span<const Meeting> meetings_;
  std::span<const Domain> domains_;
  const Durations& durations_;

  std::vector<std::size_t> first_;  // node of each actor's first instruction
  std::size_t nodes_ = 0;
  std::vector<std::size_t> actor_of_;
  std::vector<std::size_t> waits_for_;
  std::vector<std::size_t> meeting_;
  std::vector<std::size_t> before_;   // the one before it on its stream
  std::vector<std::size_t> missing_;  // by meeting: members that have not come
  std::vector<std::vector<std::size_t>> after_;

  double now_ = 0;
  std::vector<Task> tasks_;
  std::priority_queue<Finish, std::vector<Finish>, std::greater<>> finishes_;
  std::vector<std::vector<Active>> active_;          // by domain
  std::vector<std::vector<std::size_t>> actors_in_;  // by domain
  std::vector<std::vector<std::size_t>> reached_;    // by actor: domains
  std::vector<std::size_t> touched_;                 // domains
  std::vector<std::size_t> changed_;                 // tasks
  std::vector<Load> loads_;                          // by actor
  std::vector<double> demands_;                      // by domain
  Timeline timeline_;
};

}  // namespace

Timeline walk(std::span<const Actor> actors, std::span<const Meeting> meetings, std::span<const Domain> domains,
              const Durations& durations) {
  return Walk(actors, meetings, domains, durations).run();
}

}  // namespace trireme::simulator
