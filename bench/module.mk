# Load generators of `make bench`: bench/NAME.c is one program.
$(eval $(call library,bench,base,))
$(eval $(call program,bench-reader,bench/main_reader.c,bench base))
$(eval $(call program,bench-downloader,bench/main_downloader.c,bench base))
$(eval $(call program,bench-lister,bench/main_lister.c,bench catalog ufs base))
