#pragma once
#include "trireme/models/model.h"
#include "trireme/train/config.h"
#include "trireme/train/registry.h"
#include "trireme/train/session.h"

namespace trireme::train {

// Distillation: a student learns from what a trained teacher says of the same rows. Both are in one graph, the teacher
// forward only; its parameters are states "teacher.…" that are neither trained nor saved.
//
//   loss = (1 − alpha) · cross-entropy(student, targets)
//        + alpha · temperature² · KL(softmax(teacher / temperature) ‖ softmax(student / temperature))
//        + hidden · mean square of (projection(student's blocks) − teacher's blocks), each projection learned
inline constexpr const char* kTeacher = "teacher";

// The loss of a micro-batch, for the graph that `b` builds.
ir::Value distilled_loss(const ir::Builder& b, const models::Batch& in, const Config& config, const Registry& registry);

// Sets what the session stores of the teacher's parameters from distil.teacher, a run or a Hugging Face folder.
void load_teacher(const Config& config, const Registry& registry, Session& session);

// Refuses, by key, what does not go together.
void check_distillation(const Config& config);

}  // namespace trireme::train
