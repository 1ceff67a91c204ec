// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a vCPU leaves KVM for.

use std::sync::Mutex;

use anyhow::{Result, bail};
use kvm_bindings::{KVM_SYSTEM_EVENT_RESET, KVM_SYSTEM_EVENT_SHUTDOWN};
use kvm_ioctls::{VcpuExit, VcpuFd};

use crate::cycles::Cycles;
use crate::shared::{Shared, hear, lock};

/// Runs a vCPU until the machine is switched off.
///
/// # Errors
/// Says why KVM or the guest cannot go on.
pub fn enter(vcpu: &mut VcpuFd, shared: &Mutex<Shared>, cycles: Option<Cycles>) -> Result<()> {
    // What a measuring guest waits for is measured: of an interrupt line that it has not it pays nothing.
    let interrupts = lock(shared).devices.interrupts;
    if interrupts { run::<true>(vcpu, shared, cycles) } else { run::<false>(vcpu, shared, cycles) }
}

fn run<const INTERRUPTS: bool>(
    vcpu: &mut VcpuFd,
    shared: &Mutex<Shared>,
    mut cycles: Option<Cycles>,
) -> Result<()> {
    loop {
        match vcpu.run() {
            Ok(VcpuExit::MmioRead(address, data)) => {
                lock(shared).devices.read(address, data);
                if INTERRUPTS {
                    lock(shared).devices.tell_interrupt()?;
                }
            }
            Ok(VcpuExit::MmioWrite(address, data)) => {
                let sent = lock(shared).devices.write(address, data);
                if let Some(byte) = sent {
                    hear(byte, shared, cycles.as_mut())?;
                }
                if INTERRUPTS {
                    lock(shared).devices.tell_interrupt()?;
                }
            }
            Ok(VcpuExit::SystemEvent(KVM_SYSTEM_EVENT_SHUTDOWN, _)) => return Ok(()),
            Ok(VcpuExit::SystemEvent(KVM_SYSTEM_EVENT_RESET, _)) => bail!("the guest restarts its machine"),
            Ok(exit) => bail!("KVM cannot go on: {exit:?}"),
            Err(error) if error.errno() == rustix::io::Errno::INTR.raw_os_error() => {}
            Err(error) => bail!("KVM cannot run it: {error}"),
        }
    }
}
