// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `port`: standard input and output at a port of a machine that runs.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use crate::cli;
use crate::control::find;
use crate::control::protocol::Request;
use crate::control::state::{Machine, Port};
use crate::failure::{Context, Failure, Result};
use crate::layout::Layout;

/// How many bytes are read or written at once.
const PIECE: usize = 16 * 1024;

/// `port`: connects standard input and output with a port.
pub fn port(layout: &Layout, options: &cli::Port) -> Result<()> {
    let mut client = find::find(layout, Some(&options.machine), "turnstile port NAME VM PORT")?;
    let machine: Option<Machine> = client.ask(&Request::List { memory: false })?;
    let machine = machine.ok_or_else(|| Failure::failed(format!("{} has just ended", client.machine)))?;
    let port = choose(&machine, &options.vm, &options.port)?;
    let stream = UnixStream::connect(&port.path).context(|| format!("cannot connect to {}", port.path))?;
    let writer = stream.try_clone().context(|| format!("cannot use the connection to {}", port.path))?;
    let sends = options.send;
    // It ends with the process: its read cannot be interrupted.
    std::thread::spawn(move || send(writer, sends));
    receive(stream)
}

/// Finds the port that is meant, at which nobody is.
fn choose<'a>(machine: &'a Machine, vm: &str, name: &str) -> Result<&'a Port> {
    if !machine.vms.iter().any(|known| known.name == vm) {
        let names: Vec<&str> = machine.vms.iter().map(|vm| vm.name.as_str()).collect();
        let failure = Failure::usage(format!("there is no VM `{vm}`"));
        return Err(failure.help(format!("the VMs are: {}", names.join(", "))));
    }
    let own: Vec<&Port> = machine.ports.iter().filter(|port| port.vm == vm).collect();
    let Some(port) = own.iter().find(|port| port.name == name) else {
        let names: Vec<&str> = own.iter().map(|port| port.name.as_str()).collect();
        let help = match names.is_empty() {
            true => "it has none: write ports = [\"NAME\"] in the [[vm]]".to_owned(),
            false => format!("its ports are: {}", names.join(", ")),
        };
        return Err(Failure::usage(format!("the VM `{vm}` has no port `{name}`")).help(help));
    };
    if port.connected {
        let what = format!("another program is at the port `{name}` of `{vm}`");
        return Err(Failure::failed(what).help("end that first: a port is for one at a time"));
    }
    Ok(port)
}

/// Copies standard input to the port. If it `ends` with that, so does the connection when the guest has taken all.
fn send(mut stream: UnixStream, ends: bool) {
    let mut buffer = vec![0; PIECE];
    while let Some(bytes) = std::io::stdin().read(&mut buffer).ok().and_then(|count| buffer.get(..count)) {
        if bytes.is_empty() {
            break;
        }
        if stream.write_all(bytes).is_err() {
            return;
        }
    }
    if ends {
        let _ = stream.shutdown(Shutdown::Write);
    }
}

/// Copies what comes from the port to standard output, until the connection ends.
fn receive(mut stream: UnixStream) -> Result<()> {
    let mut buffer = vec![0; PIECE];
    let mut output = std::io::stdout().lock();
    loop {
        let count = stream.read(&mut buffer).context(|| "cannot read from the port".to_owned())?;
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else { return Ok(()) };
        match output.write_all(bytes).and_then(|()| output.flush()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.context(|| "cannot write to standard output".to_owned())?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::state::{State, Vm};

    #[test]
    fn the_port_that_is_meant_is_found_or_it_is_said_why_not() {
        let vm = |name: &str| Vm {
            name: name.into(),
            vcpus: 1,
            state: State::Running,
            starts: 1,
            failure: None,
            memory: None,
        };
        let port = |name: &str, connected| Port {
            name: name.into(),
            vm: "a".into(),
            path: format!("/run/a.{name}"),
            connected,
        };
        let machine = Machine {
            name: "m-1".into(),
            process: 1,
            detached: false,
            seconds: 0,
            vms: vec![vm("a"), vm("b")],
            services: Vec::new(),
            ports: vec![port("agent", false), port("log", true)],
            pool: None,
        };
        assert_eq!(choose(&machine, "a", "agent").unwrap().path, "/run/a.agent");
        for (vm, name, what, help) in [
            ("c", "agent", "there is no VM `c`", "a, b"),
            ("a", "logs", "no port `logs`", "its ports are: agent, log"),
            ("b", "agent", "no port `agent`", "ports = [\"NAME\"]"),
            ("a", "log", "another program is at the port `log`", "one at a time"),
        ] {
            let failure = choose(&machine, vm, name).unwrap_err();
            assert!(failure.to_string().contains(what), "{failure}");
            assert!(format!("{failure:?}").contains(&help.replace('"', "\\\"")), "{failure:?}");
        }
    }
}
