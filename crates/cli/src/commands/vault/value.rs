//! Taking the value of a secret: from standard input, or from a terminal that does not show it.

use std::io::{self, IsTerminal as _, Read as _, Stdin};

use mini_ork_node::secret::{LONGEST_SECRET, Secret, SecretName};
use rustix::termios::{self, LocalModes, OptionalActions, Termios};

use super::never_asks;
use crate::error::{CommandError, ExitStatus};
use crate::render;
use crate::settings::GlobalSettings;

const INTERRUPT: u8 = 0x03;
const END: u8 = 0x04;
const BACKSPACE: u8 = 0x08;
const CLEAR_LINE: u8 = 0x15;
const DELETE: u8 = 0x7f;

/// The value of `name`. On a terminal it is asked for without an echo; else standard input is read
/// to its end, and line ends at its end are removed.
pub(super) fn read(name: &SecretName, global: &GlobalSettings) -> Result<Secret, CommandError> {
    let stdin = io::stdin();
    let bytes = if stdin.is_terminal() {
        if never_asks(global)? {
            return Err(CommandError::usage(format!(
                "the value of {name} is asked for on a terminal, and MINI_ORK_NONINTERACTIVE forbids to ask"
            ))
            .hint(format!("mini-ork vault set {name} < FILE")));
        }
        ask(name, &stdin)?
    } else {
        let mut bytes = Vec::with_capacity(LONGEST_SECRET + 3);
        stdin
            .lock()
            .take(LONGEST_SECRET as u64 + 3)
            .read_to_end(&mut bytes)
            .map_err(|error| unreadable(&error))?;
        bytes
    };
    Secret::new(bytes).map_err(|error| {
        CommandError::usage(format!("this cannot be the value of {name}: {error}")).hint(format!(
            "mini-ork vault set {name} < FILE, or without it to be asked"
        ))
    })
}

fn ask(name: &SecretName, stdin: &Stdin) -> Result<Vec<u8>, CommandError> {
    let typed = {
        let _quiet = Quiet::set(stdin).map_err(|error| unreadable(&error))?;
        // After the terminal is quiet: whoever sees this may type at once.
        render::err(&format!("value of {name} (not shown): "));
        line(&mut stdin.lock())
    };
    render::err("\n");
    match typed.map_err(|error| unreadable(&error))? {
        Some(bytes) => Ok(bytes),
        None => {
            let mut cancelled = CommandError::failure("cancelled; nothing was changed");
            cancelled.status = ExitStatus::Cancelled;
            Err(cancelled)
        }
    }
}

/// The line that is typed; none when it is interrupted. Editing is what people expect of a prompt
/// that shows nothing: the last character, or everything.
fn line(input: &mut impl io::BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut typed = Vec::with_capacity(LONGEST_SECRET + 2);
    for byte in input.bytes() {
        match byte? {
            b'\r' | b'\n' | END => break,
            INTERRUPT => return Ok(None),
            BACKSPACE | DELETE => {
                // A character can have several bytes.
                while typed.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            CLEAR_LINE => typed.clear(),
            byte if typed.len() <= LONGEST_SECRET => typed.push(byte),
            _ => {}
        }
    }
    Ok(Some(typed))
}

/// A terminal that shows nothing and sends Ctrl-C as a byte, so that no signal can end the process
/// and leave the terminal so. Put back when this is dropped.
struct Quiet<'a> {
    terminal: &'a Stdin,
    before: Termios,
}

impl<'a> Quiet<'a> {
    fn set(terminal: &'a Stdin) -> io::Result<Self> {
        let before = termios::tcgetattr(terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        termios::tcsetattr(terminal, OptionalActions::Flush, &quiet)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        // Nothing is left to be done when the terminal is gone.
        let _ = termios::tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
    }
}

fn unreadable(error: &io::Error) -> CommandError {
    CommandError::failure("the value cannot be read").caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(bytes: &[u8]) -> Option<Vec<u8>> {
        line(&mut &*bytes).unwrap()
    }

    #[test]
    fn a_hidden_line_can_be_corrected_and_given_up() {
        assert_eq!(typed(b"value\nrest").unwrap(), b"value");
        assert_eq!(typed(b"valx\x7fue\r").unwrap(), b"value");
        assert_eq!(typed("v\u{e9}\x7f\x08w\n".as_bytes()).unwrap(), b"w");
        assert_eq!(typed(b"\x7f\x7fwrong\x15right\x04").unwrap(), b"right");
        assert_eq!(typed(b"value").unwrap(), b"value");
        assert_eq!(typed(b"val\x03ue\n"), None);
        let long = typed(&[b'x'; LONGEST_SECRET * 2]).unwrap();
        assert!(Secret::new(long).is_err());
    }
}
