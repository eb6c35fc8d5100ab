"""What trainscope can name: kinds of syncs, finding codes, their titles and advice."""
