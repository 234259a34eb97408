"""The twin: an arm, a T and a camera in MuJoCo, behind the interfaces of the real ones."""
