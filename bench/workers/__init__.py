"""What drains a queue, each in a process and an environment of its own.

Every program here understands the same three commands, and finds its database by PostgreSQL's environment
variables:

    setup      make what it needs in the database
    fill N     publish N events in bulk
    work HOW   say "ready", wait for a line on standard input, and handle events until that is closed. Says
               "first T" at the first event, T being the monotonic clock
"""
