"""What fills and drains a queue, each in a process and an environment of its own.

Every program here understands the same commands, and finds its database by PostgreSQL's environment variables:

    setup            make what it needs in the database
    fill N           publish N events in bulk
    publish HOW      say "ready". For a line with a number on standard input, make so many payloads and say "prepared"; for
                     the line "go", publish them, a thousand at a time ("bulk") or one by one ("single"), and say
                     "published T U": when it began and when it was done
    work HOW         say "ready", wait for a line on standard input, and handle events until that is closed. Says
                     "first T" at the first event, or, if HOW is "latency", "started T" when it begins and "seen T" at every
                     event

Times are of the monotonic clock.
"""
