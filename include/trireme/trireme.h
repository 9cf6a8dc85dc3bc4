#pragma once
// Trireme trains models that are too large, or too slow, for one device. See docs/library.md.
#include <trireme/cli.h>
#include <trireme/comm.h>
#include <trireme/data.h>
#include <trireme/error.h>
#include <trireme/float16.h>
#include <trireme/inputs.h>
#include <trireme/log.h>
#include <trireme/metrics.h>
#include <trireme/model.h>
#include <trireme/model_config.h>
#include <trireme/parameter_server.h>
#include <trireme/registry.h>
#include <trireme/trainer.h>

namespace tri = trireme;
