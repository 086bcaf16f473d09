// Command kubelet-exec is the kubelet's side of `kubectl exec` for nodes whose kubelet KWOK plays.
//
// KWOK runs an exec'd command too, but never tells its exit code. So this program stands before KWOK: it serves /exec
// with the kubelet's own streaming library, and hands every other request (port-forward above all) on to KWOK. The
// command is given to a launcher, which knows how to enter the container. As a real kubelet, it serves none but who has
// a client certificate of the cluster's authority: the API server.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// The kubelet's own values: a stream without traffic ends after four hours, and the streams of a call come within 30 s.
const (
	idleTimeout           = 4 * time.Hour
	streamCreationTimeout = 30 * time.Second
)

// launcher runs commands as `words... NAMESPACE POD CONTAINER COMMAND...`.
type launcher struct {
	words     []string
	namespace string
}

// ExecInContainer runs a command to its end. Its error is an exit code wherever the command had one.
func (l launcher) ExecInContainer(ctx context.Context, pod, _, container string, command []string, in io.Reader, out, errOut io.WriteCloser, tty bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if tty {
		return errors.New("the twin's kubelet gives no terminal: leave out -t (and -i, unless the command reads)")
	}
	words := append(append(append([]string{}, l.words[1:]...), l.namespace, pod, container), command...)
	run := exec.CommandContext(ctx, l.words[0], words...)
	if out != nil {
		run.Stdout = out
	}
	if errOut != nil {
		run.Stderr = errOut
	}
	if in != nil {
		// A pipe of our own: Wait would otherwise wait for the caller to close its standard input.
		pipe, err := run.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(pipe, in)
			_ = pipe.Close()
		}()
	}
	err := run.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return utilexec.CodeExitError{Err: err, Code: ended.ExitCode()}
	}
	return err
}

func serve(words []string, kwok http.Handler) http.Handler {
	handler := http.NewServeMux()
	run := func(response http.ResponseWriter, request *http.Request) {
		options, err := remotecommand.NewOptions(request)
		if err != nil {
			http.Error(response, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeExec(
			response, request, launcher{words: words, namespace: request.PathValue("namespace")},
			request.PathValue("pod"), request.PathValue("uid"), request.PathValue("container"),
			request.URL.Query()["command"], options, idleTimeout, streamCreationTimeout,
			remotecommand.SupportedStreamingProtocols,
		)
	}
	handler.HandleFunc("/exec/{namespace}/{pod}/{container}", run)
	handler.HandleFunc("/exec/{namespace}/{pod}/{uid}/{container}", run)
	handler.Handle("/", kwok)
	return handler
}

func main() {
	port := flag.Int("port", 0, "port to listen on, on 127.0.0.1")
	certificate := flag.String("cert", "", "certificate, PEM")
	key := flag.String("key", "", "its key, PEM")
	authority := flag.String("client-ca", "", "authority of the API server's client certificate, PEM")
	kwokPort := flag.Int("kwok-port", 0, "port of KWOK's kubelet, on 127.0.0.1")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatal("no launcher: give its words after --")
	}
	kwok := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", *kwokPort)})
	// KWOK's certificate names the API server's hosts; the connection does not leave this machine.
	kwok.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	pem, err := os.ReadFile(*authority)
	if err != nil {
		log.Fatal(err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(pem) {
		log.Fatalf("%s: no certificate in it", *authority)
	}
	server := &http.Server{
		Handler:   serve(flag.Args(), kwok),
		TLSConfig: &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients},
		// An upgraded connection exists in HTTP/1.1 only.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	log.Fatal(server.ServeTLS(listener, *certificate, *key))
}
