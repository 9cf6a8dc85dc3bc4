// Trains a model from a Hugging Face folder on text of your own, and writes a folder that transformers loads.
#include <trireme/trireme.h>

#include <cstdlib>
#include <iostream>

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: finetune HUGGING_FACE_FOLDER TEXT NEW_FOLDER [STEPS]\n";
    return 2;
  }
  try {
    tri::Trainer t{tri::Pretrained{argv[1]},
                   tri::text_files({argv[2]}, {.context = 32}),
                   {.steps = argc > 4 ? std::atoi(argv[4]) : 100, .batch = 8, .lr = 1e-3, .warmup = 5}};
    std::cout << t.parameters() << " parameters, held-out loss " << t.evaluate().value() << "\n";
    t.on_step([](const tri::Metrics& m) {
      std::cout << "step " << m.step << "  loss " << m.loss << "\n";
      return tri::Next::go;
    });
    const tri::Metrics last = t.run();
    std::cout << "held-out loss " << last.eval_loss.value() << "\n";
    t.export_huggingface(argv[3], "bf16");
    std::cout << t.generate("The ", {.tokens = 20}) << "\n";
  } catch (const tri::Error& e) {
    std::cerr << "error: " << e.message() << "\n";
    return e.kind() == tri::Error::Kind::request ? 2 : 1;
  }
}
