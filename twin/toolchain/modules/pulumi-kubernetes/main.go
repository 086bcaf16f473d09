// Command pulumi-resource-kubernetes serves the genuine Kubernetes resource provider from its published Go module.
//
// The module's own main embeds a generated schema that the module does not carry. The engine asks for a schema only to
// generate SDKs, so a minimal one is served here.
package main

import "github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"

// version is the Python SDK's own (requirements.txt): an older provider than its SDK makes every run warn.
const version = "4.34.2"

func main() {
	provider.Serve("kubernetes", version, []byte(`{"name":"kubernetes","version":"`+version+`"}`), []byte("{}"))
}
