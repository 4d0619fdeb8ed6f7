/* A dataset as a volume of a pod: the contract between jobs and the CSI driver. */
#pragma once

#define CSI_DRIVER "csi.granary.io"
#define CSI_ORDER_DIR \
	"/run/granary/order" /* of the host, and of a pod with `order`: sockets (docs/order.md) */

/* X(NAME, CHOICES): attributes of such a volume besides `dataset`; "": any text. */
#define CSI_OPTION_TABLE(X)                \
	X(generation, "")                  \
	X(path, "")                        \
	X(follow, "true|false")            \
	X(order, "true|false")             \
	X(engine, "auto|native|loop|fuse") \
	X(integrity, "sealed|strict")
#define CSI_ATTRIBUTE_TABLE(X) X(dataset, "") CSI_OPTION_TABLE(X)

#define CSI_OPTION_NAME(name, choices) "|" #name
#define CSI_ATTRIBUTES                 "dataset" CSI_OPTION_TABLE(CSI_OPTION_NAME)
