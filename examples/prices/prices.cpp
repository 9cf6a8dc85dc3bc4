// A model whose inputs have names of its own: features and a kind of each row, how much the row counts, and the price
// to predict; a scale of the features is the same for all rows.
#include <trireme/trireme.h>

#include <cmath>
#include <cstdlib>
#include <iostream>

constexpr std::int64_t kFeatures = 8, kKinds = 4;

tri::Value model(tri::Builder& b, const tri::Batch& in) {
  tri::Value x = linear(b.scope("in"), in["features"] * in["scale"], 32);
  x = gelu(x + embedding(b.scope("kinds"), in["kind"], kKinds, 32));
  x = linear(b.scope("out"), gelu(linear(b.scope("hidden"), x, 32)), 1);
  const tri::Value price = reshape(x, {x.shape()[0]});
  if (in.predicting) return price;
  const tri::Value error = price - in["price"];
  return batch_mean(b, in["weight"] * error * error);
}

float feature(std::int64_t row, std::int64_t i) { return std::sin(static_cast<float>(row * (i + 2))); }
std::int32_t kind(std::int64_t row) { return static_cast<std::int32_t>(row % kKinds); }
float price(std::int64_t row) { return feature(row, 0) * feature(row, 1) + 0.5F * static_cast<float>(kind(row)); }

void write_row(std::int64_t row, tri::Sample& to) {
  const std::span<float> features = to.floats("features");
  for (std::size_t i = 0; i < features.size(); ++i) features[i] = feature(row, static_cast<std::int64_t>(i));
  to.integers("kind")[0] = kind(row);
  to.floats("weight")[0] = row % 10 == 0 ? 3.0F : 1.0F;
  to.floats("price")[0] = price(row);
}

void write_scale(std::int64_t /*update*/, tri::Sample& to) {
  for (float& scale : to.floats("scale")) scale = 2;
}

int main(int argc, char** argv) {
  try {
    const std::vector<tri::Input> inputs = {{.name = "features", .shape = {kFeatures}},
                                            {.name = "kind", .type = tri::Input::Type::i32},
                                            {.name = "weight"},
                                            {.name = "price", .target = true},
                                            {.name = "scale", .shape = {kFeatures}, .whole = true}};
    tri::Trainer t{model,
                   tri::own_inputs(4000, inputs, write_row, {.whole = write_scale}),
                   {.steps = argc > 1 ? std::atoi(argv[1]) : 600, .batch = 64, .lr = 5e-3},
                   tri::Plan{.mesh = argc > 2 ? argv[2] : "dp=2"}};
    std::cout << t.parameters() << " parameters, held-out loss " << t.evaluate().value() << "\n";
    std::cout << "held-out loss " << t.run().eval_loss.value() << "\n";
    std::vector<float> features(kFeatures);
    for (std::int64_t i = 0; i < kFeatures; ++i) features[static_cast<std::size_t>(i)] = feature(3999, i);
    const std::vector<float> predicted = t.forward_inputs({{"features", features},
                                                           {"kind", std::vector<std::int32_t>{kind(3999)}},
                                                           {"scale", std::vector<float>(kFeatures, 2.0F)}});
    std::cout << "price " << predicted[0] << ", really " << price(3999) << "\n";
  } catch (const tri::Error& e) {
    std::cerr << "error: " << e.message() << "\n";
    return e.kind() == tri::Error::Kind::request ? 2 : 1;
  }
}
