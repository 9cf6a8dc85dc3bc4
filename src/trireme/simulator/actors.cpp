#include "trireme/simulator/actors.h"

#include <algorithm>
#include <map>
#include <set>

#include "trireme/core/error.h"
#include "trireme/program/messages.h"
#include "trireme/simulator/answers.h"

namespace trireme::simulator {
namespace {

using compiler::Compiled;
using program::Group;
using program::Instruction;

class Casting {
 public:
  Casting(const Compiled& compiled, const std::string& program, const cluster::Cluster& cluster)
      : c_(compiled), program_(program), cluster_(cluster) {}

  Cast run() {
    find_instances();
    refine();
    make_actors();
    find_links();
    make_answers();
    make_meetings();
    return std::move(cast_);
  }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(c_.ranks()); }

  // Which ranks meet: by group, an instance for each set of them.
  void find_instances() {
    instance_.assign(c_.groups.size(), std::vector<int>(ranks(), -1));
    cast_.spreads.resize(c_.groups.size());
    std::vector<std::vector<int>> coordinates;
    coordinates.reserve(ranks());
    for (int r = 0; r < c_.ranks(); ++r) coordinates.push_back(c_.coordinate(r));
    for (std::size_t g = 0; g < c_.groups.size(); ++g) {
      const Group& group = c_.groups[g];
      std::map<std::map<std::string, int>, int> known;
      std::vector<std::set<std::int64_t>> nodes;
      std::vector<std::set<std::int64_t>> links;
      std::vector<int> sizes;
      for (std::size_t r = 0; r < ranks(); ++r) {
        const compiler::Seat& seat = c_.seats[r];
        if (std::find(group.roles.begin(), group.roles.end(), seat.role) == group.roles.end()) continue;
        // By the places along all other axes.
        std::map<std::string, int> rest;
        const std::vector<ir::Mesh::Axis>& axes = c_.roles[seat.role].module.mesh.axes;
        for (std::size_t a = 0; a < axes.size() && !group.axes.empty(); ++a)
          if (std::find(group.axes.begin(), group.axes.end(), axes[a].name) == group.axes.end())
            rest[axes[a].name] = coordinates[r][a];
        const auto [at, fresh] = known.emplace(rest, static_cast<int>(known.size()));
        if (fresh) {
          nodes.emplace_back();
          links.emplace_back();
          sizes.push_back(0);
        }
        instance_[g][r] = at->second;
        ++sizes[static_cast<std::size_t>(at->second)];
        nodes[static_cast<std::size_t>(at->second)].insert(cluster_.node_of(static_cast<std::int64_t>(r)));
        links[static_cast<std::size_t>(at->second)].insert(cluster_.link_of(static_cast<std::int64_t>(r)));
      }
      for (std::size_t i = 0; i < nodes.size(); ++i)
        if (const Spread s{sizes[i], static_cast<int>(nodes[i].size()),
                           sizes[i] / static_cast<double>(links[i].size())};
            s.nodes > cast_.spreads[g].nodes || cast_.spreads[g].ranks < s.ranks)
          cast_.spreads[g] = s;
    }
  }

  // Ranks are of one class while they have the same role, the same device, and meet the same classes in every group.
  void refine() {
    class_.resize(ranks());
    std::map<std::vector<std::int64_t>, int> known;
    for (std::size_t r = 0; r < ranks(); ++r) {
      const cluster::Ranks* own = cluster_.override_of(static_cast<std::int64_t>(r));
      const std::int64_t other = own == nullptr ? -1 : own - cluster_.ranks.data();
      class_[r] = known
                      .emplace(std::vector<std::int64_t>{static_cast<std::int64_t>(c_.seats[r].role), other},
                               static_cast<int>(known.size()))
                      .first->second;
    }
    for (std::size_t classes = 0; classes != known.size();) {
      classes = known.size();
      std::vector<std::map<int, std::set<int>>> met(c_.groups.size());
      for (std::size_t g = 0; g < c_.groups.size(); ++g)
        for (std::size_t r = 0; r < ranks(); ++r)
          if (instance_[g][r] >= 0) met[g][instance_[g][r]].insert(class_[r]);
      known.clear();
      std::vector<int> next(ranks());
      for (std::size_t r = 0; r < ranks(); ++r) {
        std::vector<std::int64_t> signature = {class_[r]};
        for (std::size_t g = 0; g < c_.groups.size(); ++g)
          if (instance_[g][r] >= 0)
            for (const int other : met[g][instance_[g][r]]) {
              signature.push_back(static_cast<std::int64_t>(g));
              signature.push_back(other);
            }
        next[r] = known.emplace(signature, static_cast<int>(known.size())).first->second;
      }
      class_ = next;
    }
  }

  void make_actors() {
    const bool cores = cluster_.device.kind == "cpu";
    std::map<std::int64_t, int> domain_of_node;
    for (std::size_t r = 0; r < ranks(); ++r) {
      const auto a = static_cast<std::size_t>(class_[r]);
      const auto node = cluster_.node_of(static_cast<std::int64_t>(r));
      if (a == cast_.actors.size()) {
        const compiler::Role& role = c_.role_of(static_cast<int>(r));
        Actor actor;
        actor.program = role.during(program_);
        if (actor.program == nullptr) fail("the role '{}' has no program in a step by '{}'", role.name, program_);
        actor.name = role.name;
        actor.ranks = 0;
        actor.threads = actor.program->threads;
        actor.captures = cluster_.current().captures;
        const int domain = static_cast<int>(cast_.domains.size());
        const auto [known, fresh] = domain_of_node.emplace(cores ? node : -1 - static_cast<std::int64_t>(a), domain);
        actor.domain = known->second;
        if (fresh)
          cast_.domains.push_back({cores ? static_cast<double>(cluster_.node.cores) : 0, cluster_.node.busy_slowdown,
                                   cluster_.device_of(static_cast<std::int64_t>(r)).communication_slowdown,
                                   cores ? cluster_.node.wake : 0, cores ? cluster_.node.busy_wake : 0,
                                   cores ? cluster_.node.link_wake : 0, cluster_.node.shared_slowdown});
        cast_.actors.push_back(actor);
        cast_.role.push_back(c_.seats[r].role);
        cast_.rank.push_back(static_cast<int>(r));
        cast_.ranks.push_back(0);
      }
      ++cast_.ranks[a];
      if (node == cluster_.node_of(cast_.rank[a])) cast_.actors[a].ranks += 1;
    }
    // Several of one role: say which.
    for (std::size_t a = 0; a < cast_.actors.size(); ++a)
      if (std::count(cast_.role.begin(), cast_.role.end(), cast_.role[a]) > 1)
        cast_.actors[a].name += fmt::format(" (rank {}{})", cast_.rank[a], cast_.ranks[a] > 1 ? " …" : "");
  }

  // Who is on the link between nodes of the rank that stands for an actor.
  void find_links() {
    if (cluster_.network.sharing == 1) return;
    for (std::size_t a = 0; a < cast_.actors.size(); ++a) {
      std::map<std::size_t, double> on;
      const std::int64_t link = cluster_.link_of(cast_.rank[a]);
      const std::int64_t first = cluster_.node_of(cast_.rank[a]) * cluster_.node.devices;
      for (std::int64_t r = first; r < std::min<std::int64_t>(first + cluster_.node.devices, c_.ranks()); ++r)
        if (cluster_.link_of(r) == link) ++on[static_cast<std::size_t>(class_[static_cast<std::size_t>(r)])];
      for (const auto& [actor, count] : on) cast_.actors[a].link.push_back({actor, count});
    }
  }

  // A rank that answers messages meets its workers in every one of them.
  void make_answers() {
    const auto group = std::find_if(c_.groups.begin(), c_.groups.end(),
                                    [](const Group& g) { return g.messages == program::kExchangeMessages; });
    if (group == c_.groups.end()) return;
    messages_ = static_cast<std::size_t>(group - c_.groups.begin());
    for (std::size_t a = 0; a < cast_.actors.size(); ++a) {
      const compiler::Role& role = c_.roles[cast_.role[a]];
      if (role.takes_rows()) continue;
      const auto rank = static_cast<std::size_t>(cast_.rank[a]);
      std::set<std::size_t> own;
      for (std::size_t r = 0; r < ranks(); ++r)
        if (instance_[messages_][r] == instance_[messages_][rank] && c_.role_of(static_cast<int>(r)).takes_rows())
          own.insert(static_cast<std::size_t>(class_[r]));
      const std::vector<std::size_t> actors(own.begin(), own.end());
      std::vector<const program::Program*> programs;
      programs.reserve(actors.size());
      for (const std::size_t worker : actors) programs.push_back(cast_.actors[worker].program);
      Answers answers = answering(*cast_.actors[a].program, programs, role.exchange->place);
      for (const Answers::Answer& answer : answers.all)
        cast_.meetings.push_back({{{actors[answer.worker], answer.message}, {a, answer.instruction}}});
      cast_.answering.push_back(std::make_shared<const program::Program>(std::move(answers.program)));
      cast_.actors[a].program = cast_.answering.back().get();
    }
  }

  std::size_t group_of(const Instruction& i, std::size_t role) const {
    if (!i.communicates()) return kNoGroup;
    const bool message = i.between_stages();
    const std::string name = message ? program::message_group(i) : i.attributes.text("axis");
    for (std::size_t g = 0; g < c_.groups.size(); ++g) {
      const Group& group = c_.groups[g];
      if (std::find(group.roles.begin(), group.roles.end(), role) == group.roles.end()) continue;
      if (message ? group.messages == name : group.messages.empty() && joined(group.axes) == name) return g;
    }
    fail("no process group is for {}", name);
  }
  static std::string joined(const std::vector<std::string>& axes) { return fmt::format("{}", fmt::join(axes, "+")); }

  // The k-th of a group on one member is the k-th on all.
  void make_meetings() {
    std::vector<std::map<std::size_t, std::vector<std::size_t>>> of_group(cast_.actors.size());
    for (std::size_t a = 0; a < cast_.actors.size(); ++a) {
      const std::vector<Instruction>& all = cast_.actors[a].program->instructions;
      cast_.group.emplace_back(all.size(), kNoGroup);
      std::map<std::string, std::size_t> known;  // names are looked up once
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!all[i].communicates()) continue;
        if (all[i].kind == Instruction::Kind::push || all[i].kind == Instruction::Kind::pull) {
          cast_.group[a][i] = messages_;
          continue;
        }
        const std::string key =
            all[i].between_stages() ? program::message_group(all[i]) : all[i].attributes.text("axis");
        const auto [at, fresh] = known.emplace(key, 0);
        if (fresh) at->second = group_of(all[i], cast_.role[a]);
        cast_.group[a][i] = at->second;
        of_group[a][at->second].push_back(i);
      }
    }
    std::set<std::pair<std::size_t, std::vector<std::size_t>>> done;
    for (std::size_t a = 0; a < cast_.actors.size(); ++a)
      for (const auto& [g, own] : of_group[a]) {
        std::set<std::size_t> met;
        const int instance = instance_[g][static_cast<std::size_t>(cast_.rank[a])];
        for (std::size_t r = 0; r < ranks(); ++r)
          if (instance_[g][r] == instance) met.insert(static_cast<std::size_t>(class_[r]));
        const std::vector<std::size_t> members(met.begin(), met.end());
        if (!done.emplace(g, members).second) continue;
        for (std::size_t k = 0; k < own.size(); ++k) {
          Meeting meeting;
          for (const std::size_t m : members) {
            const auto theirs = of_group[m].find(g);
            if (theirs == of_group[m].end() || theirs->second.size() != own.size())
              fail("{} and {} do not have the same collectives along '{}'", cast_.actors[a].name, cast_.actors[m].name,
                   joined(c_.groups[g].axes));
            meeting.members.push_back({m, theirs->second[k]});
          }
          cast_.meetings.push_back(std::move(meeting));
        }
      }
  }

  const Compiled& c_;
  const std::string& program_;
  const cluster::Cluster& cluster_;
  std::vector<std::vector<int>> instance_;  // by group and rank; -1: not a member
  std::vector<int> class_;                  // by rank
  std::size_t messages_ = kNoGroup;         // the group of workers and of those that answer them
  Cast cast_;
};

}  // namespace

Cast cast_of(const Compiled& compiled, const std::string& program, const cluster::Cluster& cluster) {
  return Casting(compiled, program, cluster).run();
}

}  // namespace trireme::simulator
