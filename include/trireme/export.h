#pragma once

// The library is compiled with hidden visibility: what carries this mark can be used from outside.
#define TRIREME_API __attribute__((visibility("default")))
