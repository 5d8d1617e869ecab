"""Entry of `sluice up` and `down`, and of deploy/local/up and down in a
checkout: python3 deploy/local/cluster COMMAND.

Standard library alone: it runs before anything is installed.
"""

import os
import sys

import agent
import certificates
import commands
import exits
import installation
import link_probe
import model
import options


def parse_up(arguments):
    parser = options.up_parser(installation.command("up"))
    parsed = parser.parse_args(arguments)
    options.check_up(parser, parsed)
    return parsed


def main(arguments):
    if not arguments:
        print("usage: cluster up|check|down|supervise|certificates|"
              "fetch-model ...",
              file=sys.stderr)
        return exits.USAGE
    command, rest = arguments[0], arguments[1:]
    if command == "check":  # Whether the options make sense.
        parsed = parse_up(rest)
        lacks = model.missing(parsed.model) \
            if parsed.no_install and not parsed.hosts else None
        if lacks:
            commands.say(f"missing: {lacks}")
            return exits.SETUP_FAILED
        return exits.OK
    if command == "up":
        parsed = parse_up(rest)
        return commands.up_hosts(parsed) if parsed.hosts \
            else commands.up(parsed)
    if command == "down":
        return commands.down(options.run_dir_parser(
            installation.command("down"), "Drains and stops the cluster of a run "
            "folder; does nothing if there is none.").parse_args(rest))
    if command == "supervise":
        return commands.supervise(options.run_dir_parser(
            "supervise", "Restarts what dies.").parse_args(rest))
    if command == "host-start":  # by `up --hosts`, on each host
        return agent.start(agent.parser(command).parse_args(rest))
    if command == "host-logs":
        return agent.tell_logs(agent.parser(command).parse_args(rest))
    if command == "host-links":
        return link_probe.main()
    if command == "certificates":
        for path in certificates.make(certificates.parser().parse_args(rest)):
            print(path)
        return exits.OK
    if command == "fetch-model":
        print(model.fetch_default())
        return exits.OK
    print(f"unknown command {command}", file=sys.stderr)
    return exits.USAGE


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except exits.Failure as failure:
        commands.say(f"error: {failure}")
        sys.exit(failure.code)
    except OSError as error:
        commands.say(f"error: {error}")
        # What reads our output may be gone: Python says so no more than once.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(exits.UNEXPECTED)
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
