$(eval $(call library,ufs,base,-lcurl -lexpat -luv -lm))
