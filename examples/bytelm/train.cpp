#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "byte_lm.h"

int main(int argc, char** argv) try {
  tri::ModelConfig model{.family = "bytelm", .layers = 6, .width = 256};
  tri::TrainOptions options{.steps = 300, .batch = 32, .lr = 3e-3};
  std::vector<std::string> text = {tri::kCxxHeaders};
  std::string save = "runs/bytelm";
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--steps")
      options.steps = std::stoll(value);
    else if (name == "--batch")
      options.batch = std::stoll(value);
    else if (name == "--layers")
      model.layers = std::stoll(value);
    else if (name == "--width")
      model.width = std::stoll(value);
    else if (name == "--text")
      text = {value};
    else if (name == "--save")
      save = value;
    else
      throw std::invalid_argument("unknown option " + name);
  }
  options.log = [](tri::LogLevel, const std::string& message) { std::clog << message << '\n'; };

  // Without the registry, tri::Trainer{ByteLM{}, …} takes the model as it is; by name, what is saved says how to build
  // it.
  tri::Trainer trainer(model, tri::text_files(text), options, {}, registry_with_byte_lm());
  std::cout << trainer.memory() << '\n';
  trainer.on_step([&](const tri::Metrics& m) {
    if (m.step == 1 || m.step % 10 == 0 || m.step == options.steps)
      std::printf("step %4lld  loss %.3f  %.0f tokens/s\n", static_cast<long long>(m.step), m.loss, m.tokens_per_s);
    std::fflush(stdout);
    return m.loss < 1.2 ? tri::Next::stop : tri::Next::go;
  });
  const tri::Metrics last = trainer.run();
  if (last.eval_loss) std::printf("held out   %.3f\n", *last.eval_loss);
  std::printf("it says    %s\n", trainer.generate("template<", {.tokens = 60}).c_str());
  trainer.save(save);
  std::printf("saved      %s\n", save.c_str());
} catch (const std::exception& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return 1;
}
