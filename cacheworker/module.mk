$(eval $(call library,cacheworker,tiers catalog ufs cluster placement admin net proto locate base,))
$(eval $(call program,cacheworker,cacheworker/main_cacheworker.c,cacheworker tiers catalog ufs cluster placement admin net proto locate base))
