/*
 * The tests' API server of Kubernetes (tests/unit/kube/fake_kube.h) as a program: fake-kube DIR.
 *
 * Writes DIR/kubeconfig, then prints its port; each request becomes a line of JSON in DIR/requests. Ends when its standard input does.
 */
#include "tests/unit/kube/fake_kube.h"

#include <stdio.h>

static struct fake_kube kube;

int main(int argc, char **argv)
{
	char path[512];
	char byte;

	if (argc != 2) {
		(void)fprintf(stderr, "usage: fake-kube DIR\n");
		return 2;
	}
	fake_kube_start(&kube);
	(void)snprintf(path, sizeof(path), "%s/requests", argv[1]);
	kube.log = fopen(path, "we");
	ensure(kube.log);
	(void)snprintf(path, sizeof(path), "%s/kubeconfig", argv[1]);
	fake_kube_config(&kube, path, "the-token");
	kube.token = "the-token";
	(void)printf("%u\n", kube.server.port);
	(void)fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	fake_kube_stop(&kube);
	return fclose(kube.log) == 0 ? 0 : 1;
}
