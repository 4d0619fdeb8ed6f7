$(eval $(call library,base,,-lxxhash -lcrypto -luv -lyaml))
