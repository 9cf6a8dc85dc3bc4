#include "trireme/cli/commands.h"
#include "trireme/cli/lessons/lesson.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {
namespace {

int list() {
  fmt::print("Lessons, of some seconds each: a law, measured here and now.\n\n");
  for (const Lesson& lesson : lessons()) fmt::print("  trireme lesson {:<20} {}\n", lesson.name, lesson.title);
  fmt::print("\n`trireme lesson all` runs them all.\n");
  return 0;
}

int teach(const Context& context, const std::string& name) {
  std::vector<std::string> names;
  bool exact = true, found = false;
  for (const Lesson& lesson : lessons()) {
    names.emplace_back(lesson.name);
    if (name != lesson.name && name != "all") continue;
    fmt::print("{}{}\n\n", found ? "\n────────\n" : "", lesson.title);
    found = true;
    const Classroom classroom(*context.registry);
    exact = lesson.run(classroom) && exact;
    fmt::print("read    {}\n", lesson.page);
    std::fflush(stdout);
  }
  if (!found) {
    const auto near = nearest(name, names);
    refuse("there is no lesson '{}'; {}", name,
           near ? "did you mean '" + *near + "'?" : fmt::format("the lessons are {}", fmt::join(names, ", ")));
  }
  return exact ? 0 : 1;
}

}  // namespace

void add_lesson(CLI::App& app, Context& context) {
  auto name = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("lesson", "A technique in a few seconds: its law, measured here and now");
  command->add_option("name", *name, "Which; without one, the list");
  command->footer(
      "\nExamples:\n"
      "  trireme lesson                  which there are\n"
      "  trireme lesson recomputation\n"
      "  trireme lesson all\n");
  command->callback([&context, name] {
    context.run = [&context, name] {
      if (!context.overrides.empty())
        refuse("a lesson has its own configuration; it takes no {}", context.overrides.front());
      return name->empty() ? list() : teach(context, *name);
    };
  });
}

}  // namespace trireme::cli
