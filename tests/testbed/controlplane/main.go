// Copyright: (c) 2026, gpufleet.nvidia contributors
// GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Command controlplane is a whole Kubernetes control plane in one file, made from the real programs' own packages.
// It acts by the name it is called by, or else by its first argument: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, kubelet or kubectl. One binary links the shared code once, which saves minutes of build time and
// about half a gigabyte of disk.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs gives, for each name, what runs the program and returns its exit status.
var programs = map[string]func() int{
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(manager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
	"kubectl":                 func() int { return runKubectl(kubectl.NewDefaultKubectlCommand()) },
}

// runKubectl reports an error the way kubectl itself does: in its own words and with its own exit status.
func runKubectl(command *cobra.Command) int {
	if err := cli.RunNoErrOutput(command); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}

func names() string {
	all := make([]string, 0, len(programs))
	for name := range programs {
		all = append(all, name)
	}
	sort.Strings(all)
	return strings.Join(all, ", ")
}

func main() {
	name := filepath.Base(os.Args[0])
	if programs[name] == nil {
		if len(os.Args) < 2 || programs[os.Args[1]] == nil {
			fmt.Fprintf(os.Stderr, "usage: %s PROGRAM [ARGUMENT...], where PROGRAM is one of %s\n", name, names())
			os.Exit(2)
		}
		name = os.Args[1]
		// The program must find its own name and arguments, as if it were a file of its own.
		os.Args = append([]string{name}, os.Args[2:]...)
	}
	os.Exit(programs[name]())
}
