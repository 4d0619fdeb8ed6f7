/* A dataset as a volume of a pod: the contract with the CSI driver. */
#pragma once

#define CSI_DRIVER     "csi.granary.io"
#define CSI_ATTRIBUTES "dataset|generation|path|follow|engine|integrity|order"
