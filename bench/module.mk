# Load generators of `make bench`: bench/NAME.c is one program.
$(eval $(call library,bench,base,))
$(eval $(call program,bench-reader,bench/main_reader.c,bench base))
$(B)/bin/bench-reader: $(B)/tests/tools/s3d_noise.o
$(eval $(call program,bench-downloader,bench/main_downloader.c,bench base))
$(eval $(call program,bench-lister,bench/main_lister.c,bench catalog ufs base))
$(eval $(call program,bench-wire,bench/main_wire.c,bench base))
$(eval $(call program,bench-peer,bench/main_peer.c,bench client catalog cluster placement locate ufs net proto base))
$(eval $(call program,bench-sim,bench/main_sim.c,bench placement net proto base))
$(eval $(call program,bench-herd,bench/main_herd.c,bench placement base))
