# The schemas of the engines' objects are stored in the library.
jobs_gen := $(B)/gen/jobs/schemas.c
$(jobs_gen): jobs/schemas.json
	@mkdir -p $(@D)
	@echo "GEN   jobs/schemas"
	@{ echo "extern const unsigned char job_schemas_json[];"; echo "extern const unsigned long job_schemas_bytes;"; \
		echo "const unsigned char job_schemas_json[] = {"; od -An -v -tu1 $< | sed 's/  */,/g; s/^,//; s/$$/,/'; echo "};"; \
		echo "const unsigned long job_schemas_bytes = sizeof(job_schemas_json);"; } >$@

$(eval $(call library,jobs,base,-ljansson))
