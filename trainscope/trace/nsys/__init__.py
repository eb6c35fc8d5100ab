"""Reading what nsys recorded: ``.sqlite`` exports and ``.nsys-rep`` files to a ``Window``.

Nothing is imported here: the command line wants only ``tool``, without numpy.
"""
