/* The version every program reports. */
#pragma once

#define GRANARY_VERSION "0.1.0"
