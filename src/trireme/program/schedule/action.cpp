#include "trireme/program/schedule/action.h"

#include <charconv>
#include <optional>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::program {
namespace {

using Kind = Action::Kind;

constexpr std::string_view kLetters = "FBWU";  // in the order of Kind

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<Action> parse_action(std::string_view text) {
  const std::size_t letter = text.empty() ? std::string_view::npos : kLetters.find(text.front());
  if (letter == std::string_view::npos) return std::nullopt;
  Action action{static_cast<Kind>(letter)};
  const std::string_view rest = text.substr(1);
  if (action.kind == Kind::update) return rest.empty() ? std::optional(action) : std::nullopt;
  const std::size_t dot = rest.find('.');
  const std::optional<int> micro = number(rest.substr(0, dot));
  const std::optional<int> chunk = dot == std::string_view::npos ? 0 : number(rest.substr(dot + 1));
  if (!micro || !chunk) return std::nullopt;
  action.micro = *micro;
  action.chunk = *chunk;
  return action;
}

}  // namespace

std::string to_text(const Action& action) {
  const char letter = kLetters[static_cast<std::size_t>(action.kind)];
  if (action.kind == Kind::update) return std::string(1, letter);
  return action.chunk == 0 ? fmt::format("{}{}", letter, action.micro)
                           : fmt::format("{}{}.{}", letter, action.micro, action.chunk);
}

std::string to_text(std::span<const Action> actions) {
  std::string out;
  for (const Action& action : actions) out += (out.empty() ? "" : " ") + to_text(action);
  return out;
}

std::vector<Action> parse_actions(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n";
  std::vector<Action> actions;
  for (std::size_t at = text.find_first_not_of(kBlank); at != std::string_view::npos;
       at = text.find_first_not_of(kBlank, at)) {
    const std::size_t end = std::min(text.find_first_of(kBlank, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const std::optional<Action> action = parse_action(word);
    if (!action)
      refuse("'{}' is no action: those are F0, B0 and W0 of a micro-batch, F0.1 of its chunk 1, and U", word);
    actions.push_back(*action);
    at = end;
  }
  return actions;
}

std::vector<Action> plain_order(const ActionNeeds& needs) {
  std::vector<Action> actions;
  for (int micro = 0; micro < needs.micro_batches; ++micro) {
    for (int chunk = 0; chunk < needs.chunks; ++chunk) actions.push_back({Kind::forward, micro, chunk});
    for (int chunk = needs.chunks; needs.backward && chunk-- > 0;) actions.push_back({Kind::backward, micro, chunk});
  }
  if (needs.update) actions.push_back({Kind::update});
  return actions;
}

void check_actions(std::span<const Action> actions, const ActionNeeds& needs) {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  const auto key = [&](const Action& a) {
    return (static_cast<std::size_t>(a.kind) * needs.chunks + a.chunk) * needs.micro_batches + a.micro;
  };
  std::vector<std::size_t> place(kLetters.size() * needs.chunks * needs.micro_batches, kNone);
  const auto find = [&](const Action& action) { return place[key(action)]; };
  for (std::size_t a = 0; a < actions.size(); ++a) {
    const Action& action = actions[a];
    const bool update = action.kind == Kind::update;
    if (action.chunk >= needs.chunks)
      refuse("{} is of chunk {}, and the rank has {}", to_text(action), action.chunk,
             needs.chunks == 1 ? "one chunk" : fmt::format("{} chunks", needs.chunks));
    if (update ? !needs.update : action.micro >= needs.micro_batches)
      refuse("{} has nothing to run: there {} {} micro-batch{}{}", to_text(action),
             needs.micro_batches == 1 ? "is" : "are", needs.micro_batches, needs.micro_batches == 1 ? "" : "es",
             needs.update ? "" : " and no update");
    if (!update && action.kind != Kind::forward && !needs.backward)
      refuse("{} has nothing to run: there are no gradients", to_text(action));
    if (find(action) != kNone) refuse("{} comes twice", to_text(action));
    place[key(action)] = a;
  }
  const auto follows = [&](const Action& action, const Action& earlier) {
    if (find(action) < find(earlier)) refuse("{} comes before {}", to_text(action), to_text(earlier));
  };
  const auto required = [&](const Action& action) {
    if (find(action) == kNone) refuse("{} is missing", to_text(action));
  };
  for (int micro = 0; micro < needs.micro_batches; ++micro)
    for (int chunk = 0; chunk < needs.chunks; ++chunk) {
      const Action forward{Kind::forward, micro, chunk};
      const Action backward{Kind::backward, micro, chunk};
      const Action weight_gradient{Kind::weight_gradient, micro, chunk};
      required(forward);
      if (!needs.backward) continue;
      required(backward);
      follows(backward, forward);
      if (find(weight_gradient) != kNone) follows(weight_gradient, backward);
    }
  if (!needs.update) return;
  required({Kind::update});
  if (const std::size_t at = find({Kind::update}); at + 1 < actions.size())
    refuse("{} comes before {}", to_text(actions[at]), to_text(actions[at + 1]));
}

}  // namespace trireme::program
