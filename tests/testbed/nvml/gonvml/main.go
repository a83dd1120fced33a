// Copyright: (c) 2026, gpufleet.nvidia contributors
// GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Reads a host's GPUs and MIG devices as NVIDIA's own Go programs do, through go-nvml and go-nvlib, and prints them as JSON.
// With arguments INDEX PROFILE it first turns MIG mode on for that GPU and creates an instance of the profile on it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/NVIDIA/go-nvlib/pkg/nvlib/device"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

type migDevice struct {
	Index   int
	UUID    string
	Profile string
	Memory  uint64
	SMs     uint32
	GI, CI  int
}

type gpu struct {
	Name, UUID, Bus, Brand, Architecture, Compute string
	Minor                                         int
	Memory                                        uint64
	Capable, Enabled, Fabric, Coherent            bool
	Profiles                                      []string
	Devices                                       []migDevice
}

func check(code nvml.Return, what string) {
	if code != nvml.SUCCESS {
		fail(fmt.Errorf("%s: %v (%d)", what, code, code))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// create makes an instance as mig-parted does: indexes to ids, no placement, the compute instance by its own profile.
func create(loaded nvml.Interface, library device.Interface, index int, name string) {
	of, code := loaded.DeviceGetHandleByIndex(index)
	check(code, "handle")
	activation, code := of.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	check(code, "mode")
	check(activation, "activation")
	profile, err := library.ParseMigProfile(name)
	fail(err)
	wanted := profile.GetInfo()
	info, code := of.GetGpuInstanceProfileInfo(wanted.GIProfileID)
	check(code, "instance profile")
	instance, code := of.CreateGpuInstance(&info)
	check(code, "instance")
	compute, code := instance.GetComputeInstanceProfileInfo(wanted.CIProfileID, wanted.CIEngProfileID)
	check(code, "compute profile")
	_, code = instance.CreateComputeInstance(&compute)
	check(code, "compute instance")
}

func read(of device.Device) (found gpu, err error) {
	var code nvml.Return
	found.Name, code = of.GetName()
	check(code, "name")
	found.UUID, code = of.GetUUID()
	check(code, "uuid")
	found.Minor, code = of.GetMinorNumber()
	check(code, "minor")
	memory, code := of.GetMemoryInfo()
	check(code, "memory")
	found.Memory = memory.Total
	for _, text := range []struct {
		to   *string
		from func() (string, error)
	}{
		{&found.Bus, of.GetPCIBusID},
		{&found.Brand, of.GetBrandAsString},
		{&found.Architecture, of.GetArchitectureAsString},
		{&found.Compute, of.GetCudaComputeCapabilityAsString},
	} {
		if *text.to, err = text.from(); err != nil {
			return
		}
	}
	for _, answer := range []struct {
		to   *bool
		from func() (bool, error)
	}{
		{&found.Capable, of.IsMigCapable},
		{&found.Fabric, of.IsFabricAttached},
		{&found.Coherent, of.IsCoherent},
	} {
		if *answer.to, err = answer.from(); err != nil {
			return
		}
	}
	if !found.Capable {
		return
	}
	if found.Enabled, err = of.IsMigEnabled(); err != nil {
		return
	}
	profiles, err := of.GetMigProfiles()
	if err != nil {
		return
	}
	for _, profile := range profiles {
		found.Profiles = append(found.Profiles, profile.String())
	}
	return found, of.VisitMigDevices(func(index int, mig device.MigDevice) error {
		profile, err := mig.GetProfile()
		if err != nil {
			return err
		}
		uuid, code := mig.GetUUID()
		check(code, "uuid of a MIG device")
		attributes, code := mig.GetAttributes()
		check(code, "attributes")
		gi, code := mig.GetGpuInstanceId()
		check(code, "instance id")
		ci, code := mig.GetComputeInstanceId()
		check(code, "compute instance id")
		found.Devices = append(found.Devices, migDevice{
			Index: index, UUID: uuid, Profile: profile.String(), Memory: attributes.MemorySizeMB,
			SMs: attributes.MultiprocessorCount, GI: gi, CI: ci,
		})
		return nil
	})
}

func main() {
	loaded := nvml.New()
	check(loaded.Init(), "init")
	defer loaded.Shutdown()
	library := device.New(loaded)
	if len(os.Args) == 3 {
		index, err := strconv.Atoi(os.Args[1])
		fail(err)
		create(loaded, library, index, os.Args[2])
	}
	gpus := []gpu{}
	fail(library.VisitDevices(func(_ int, of device.Device) error {
		found, err := read(of)
		gpus = append(gpus, found)
		return err
	}))
	fail(json.NewEncoder(os.Stdout).Encode(gpus))
}
