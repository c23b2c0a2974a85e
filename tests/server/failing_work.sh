printf 'it "said" no, \\and \377\001\n'
exit 7
