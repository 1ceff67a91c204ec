// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a vCPU leaves KVM for.

use std::sync::Mutex;

use anyhow::{Result, bail};
use kvm_ioctls::{VcpuExit, VcpuFd};
use rustix::io::Errno;

use super::ports::Meaning;
use crate::cycles::Cycles;
use crate::doorbell::read_or_ones;
use crate::shared::{Shared, hear, lock};

/// Runs a vCPU until the machine is switched off.
///
/// # Errors
/// Says why KVM or the guest cannot go on.
pub fn enter(vcpu: &mut VcpuFd, shared: &Mutex<Shared>, mut cycles: Option<Cycles>) -> Result<()> {
    let doorbell = lock(shared).devices.doorbell.clone();
    loop {
        match vcpu.run() {
            Ok(VcpuExit::IoIn(port, data)) => lock(shared).devices.with(|ports| ports.read(port, data))?,
            Ok(VcpuExit::IoOut(port, data)) => {
                let meaning = lock(shared).devices.with(|ports| ports.write(port, data))?;
                match meaning {
                    Meaning::Nothing => {}
                    Meaning::Sent(byte) => hear(byte, shared, cycles.as_mut())?,
                    Meaning::Off => return Ok(()),
                    Meaning::Reset => bail!("the guest restarts its machine"),
                }
            }
            Ok(VcpuExit::MmioRead(address, data)) => {
                let value = read_or_ones(doorbell.as_ref(), address);
                data.iter_mut().zip(value.to_le_bytes()).for_each(|(byte, of_value)| *byte = of_value);
            }
            Ok(VcpuExit::MmioWrite(..)) => {}
            Ok(VcpuExit::Shutdown) => bail!("the guest had a triple fault"),
            Ok(exit) => bail!("KVM cannot go on: {exit:?}"),
            // A signal; or a vCPU that waited for its start has got an INIT.
            Err(error) if [Errno::INTR, Errno::AGAIN].contains(&Errno::from_raw_os_error(error.errno())) => {}
            Err(error) => bail!("KVM cannot run it: {error}"),
        }
    }
}
